"""What the guide to the page takes for granted: an app."""

from penstock import Penstock

app = Penstock()


@app.job(queue="mail")
def send(to: str) -> str:
    return to
