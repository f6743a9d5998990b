"""Small files of a user's own, in every format."""

import pandas

ROWS = [("good film", "pos"), ("bad film", "neg"), ('it said "no", twice', "neg"), ("fine\nbut long", "pos")]


def write(path, rows=ROWS, header=("text", "label")):
    frame = pandas.DataFrame(rows, columns=list(header))
    kind = path.name.removesuffix(".gz").split(".")[-1]
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "tsv":
        frame.replace("\n", " ", regex=True).to_csv(path, index=False, sep="\t", quoting=3, escapechar="\\")
    elif kind == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    return path
