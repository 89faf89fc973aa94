-- The columns of a job that was moved, in the order in which `transaction` reads them.
id, type, queue, state, fence, attempt, reason, version
