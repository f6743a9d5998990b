"""The summary of a page: every record has its say before one has a second."""

import numpy as np

import layerscope as ls
from layerscope.reporting.summary import MOST, by_weight, summarize
from layerscope.results import Finding, NextStep
from layerscope.results.finding import ADVISE, ANSWER, DETAIL


def compared(seed):
    draw = np.random.default_rng(seed).normal
    result = ls.compare([draw(size=(60, 3)) for _ in range(8)])
    parts = {"cka": result, "cka-blocks": ls.layer_blocks(result, k=2)}
    return ls.Record.of("compare", f"Record {seed}", parts, command="layerscope compare m --task t")


def test_a_page_of_many_records_has_a_finding_of_each_in_their_order():
    summary = summarize([compared(seed) for seed in range(8)])
    assert [told.record for told in summary.findings] == list(range(8))
    assert len(summarize([compared(seed) for seed in range(4)]).findings) == MOST
    assert list(summary.questions.values()) == [0]  # asked eight times, and said once


def test_a_page_of_one_record_has_all_of_its_findings():
    summary = summarize([compared(0)])
    assert [told.record for told in summary.findings] == [0, 0]
    assert not summary.next  # nothing is known of its models


def test_the_last_record_says_what_to_do_next():
    other = ls.Record(kind="mine", title="x", figures=[], next=NextStep("tune", line="layerscope tune m"))
    assert summarize([compared(0), other]).next[0].command == "layerscope tune m"
    assert summarize([ls.Record(kind="mine", title="x", figures=[])]).findings == []


def test_what_another_record_has_done_is_not_recommended():
    def record(kind, command, model, step=None):
        about = {"title": kind, "figures": [], "data": {"task": "sst2"}, "command": f"layerscope {command}"}
        models = [{"name": model, "class": "BertForSequenceClassification"}]
        return ls.Record(kind=kind, models=models, next=step, **about)

    tuned = record("tune", "tune m --task sst2 -o small", "m", NextStep("advise", ("-o", "advice"), saved=""))
    curve = record("truncate", "truncate small --task sst2 --curve -o curve", "small", ADVISE)
    heal = NextStep("advise", ("--heal", "300", "-o", "healed-advice"))
    advice = record("advise", "advise small --task sst2 -o advice", "small", heal)
    assert summarize([tuned, curve]).next[0].command == "layerscope advise small --task sst2 -o advice"
    assert summarize([advice, tuned, curve]).next[0].command.startswith("layerscope advise small --task sst2 --heal")
    assert summarize([record("mine", "", "m"), curve]).next[0].target == ("advise", "small")
    broken = ls.Record(kind="mine", title="x", figures=[], next=NextStep("tune", line="layerscope tune 'm"))
    assert summarize([broken]).next[0].target == ()


def test_answers_come_first_and_nothing_is_said_twice():
    one, two, three = Finding("a", weight=DETAIL), Finding("b", weight=ANSWER), Finding("c")
    made = ls.Record(kind="x", title="x", figures=[], findings=[one, two, three, two])
    assert by_weight(made) == [two, three, one]
    told = by_weight(compared(0))
    assert [finding.weight for finding in told] == sorted((f.weight for f in told), reverse=True)
    assert told[0].text.startswith("2 blocks, cut before layer")


def test_the_page_tells_a_finding_with_its_evidence_and_how_sure_it_is(tmp_path):
    findings = [Finding("It is 3.", "n = 5", True), Finding("It is said."), Finding("It may be.", "few rows", False)]
    page = ls.report(ls.Record(kind="x", title="x", figures=[], findings=findings), tmp_path / "r.html").read_text()
    assert 'href="#term-sure">sure</a> n = 5. <a' in page
    assert 'href="#term-not-tested">not tested</a> <a' in page
    assert 'href="#term-sure">sure</a> It is 3. <span class="evidence">n = 5.</span></p>' in page
    assert 'href="#term-not-tested">not tested</a> It is said.</p>' in page
