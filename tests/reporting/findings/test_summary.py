"""The summary of a page: every record has its say before one has a second."""

import numpy as np

import layerscope as ls
from layerscope.reporting.findings.summary import MOST, summarize


def compared(seed):
    draw = np.random.default_rng(seed).normal
    result = ls.compare([draw(size=(60, 3)) for _ in range(8)])
    parts = {"cka": result, "cka-blocks": ls.blocks(result, k=2)}
    return ls.Record.of("compare", f"Record {seed}", parts, command="layerscope compare m --task t")


def test_a_page_of_many_records_has_six_findings_in_their_order():
    summary = summarize([compared(seed) for seed in range(8)])
    assert len(summary.findings) == MOST
    assert [told.record for told in summary.findings] == list(range(6))
    assert list(summary.questions.values()) == [0]  # asked eight times, and said once


def test_a_page_of_one_record_has_all_of_its_findings():
    summary = summarize([compared(0)])
    assert [told.record for told in summary.findings] == [0, 0]
    assert summary.next is None  # nothing is known of its models


def test_the_last_record_says_what_to_do_next():
    other = ls.Record(kind="mine", title="x", figures=[], findings=["Next: layerscope tune m"])
    assert summarize([compared(0), other]).next.command == "layerscope tune m"
    assert summarize([ls.Record(kind="mine", title="x", figures=[])]).findings == []


def test_what_another_record_has_done_is_not_recommended():
    def record(kind, command, model):
        about = {"title": kind, "figures": [], "data": {"task": "sst2"}, "command": f"layerscope {command}"}
        return ls.Record(kind=kind, models=[{"name": model, "class": "BertForSequenceClassification"}], **about)

    tuned = record("tune", "tune m --task sst2 -o small", "m")
    curve = record("truncate", "truncate small --task sst2 --curve -o curve", "small")
    advice = record("advise", "advise small --task sst2 -o advice", "small")
    assert summarize([tuned, curve]).next.command == "layerscope advise small --task sst2 -o advice"
    assert summarize([advice, tuned, curve]).next.command.startswith("layerscope advise small --task sst2 --heal")
    assert summarize([record("mine", "", "m"), curve]).next.target == ("advise", "small")
    broken = ls.Record(kind="mine", title="x", figures=[], findings=["Next: layerscope tune 'm"])
    assert summarize([broken]).next.target == ()
