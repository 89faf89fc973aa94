// The job of job.py for systems that run on Node: the same payload, the same record.
const fs = require("fs");

const log = fs.openSync(process.env.BENCH_LOG, "a");
const now = () => (performance.timeOrigin + performance.now()) / 1000;

exports.payload = (index) => ({ i: index, t: now(), user: "someone@example.org", pad: "x".repeat(30) });

exports.mark = (index, enqueuedAt) => {
  const record = Buffer.allocUnsafe(24);
  record.writeBigUInt64LE(BigInt(index), 0);
  record.writeDoubleLE(enqueuedAt, 8);
  record.writeDoubleLE(now(), 16);
  fs.writeSync(log, record);
};

exports.sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
