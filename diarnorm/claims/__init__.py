"""What is said about norms, put to the test: `diarnorm claims`.

    registry.py      the claims, and what each has to show to be confirmed, fixed beforehand
    evidence.py      what an experiment leaves behind: figures with intervals, tables, pictures' numbers
    records.py       evidence as JSON; what it was made on
    pictures.py      plots, report.py and page.py: claims.md, claims.json and claims.html
    command.py       `diarnorm claims`

Each other module is an experiment or a family of them, with a function that returns an `Evidence`.
"""
