"""The tables of the guide to AWS's costs are those that tools/aws_bill.py reckons from what tests measure."""

from tools import aws_bill


def test_the_tables_of_the_guide_are_reckoned_from_what_was_measured() -> None:
    text = aws_bill.GUIDE.read_text("utf-8")
    assert aws_bill.written_into(text) == text, "run: python -m tools.aws_bill --write"
    assert all(table in text for table in aws_bill.tables().values())
