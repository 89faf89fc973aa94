"""What the guide to files takes for granted: a handler that reads a file and gives one."""

from penstock import Context, Penstock

app = Penstock()


@app.job
def report(ctx: Context, month: str) -> int:
    rows = ctx.inputs["sales.csv"].read_text().splitlines()
    ctx.outputs.write("report.txt", f"{month}: {len(rows)} rows\n")
    return len(rows)
