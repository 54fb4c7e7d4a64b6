"""Library behind the notebooks; the README says what each module is for. Each imports only from those above it."""

__version__ = "0.1.0"
