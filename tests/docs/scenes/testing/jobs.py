"""What the guide to testing takes for granted: an app."""

from penstock import Penstock

app = Penstock()


@app.job
def invoice(item: str) -> str:
    return f"one {item}"
