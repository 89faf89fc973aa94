-- The columns of a claim that follow its job, in the order in which `leases` reads them.
type, queue, fence, attempt, params, params_object, timeout, inputs, tags, alone, alone_in_worker, priority
