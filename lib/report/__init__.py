"""A profile's results as one self-contained HTML page: `page.render`; `explorer.explored` is the data of its explorer.

Everything that the page shows is read from files that runs wrote and from the bundled sample; the folder's template,
style and script hold no results.
"""
