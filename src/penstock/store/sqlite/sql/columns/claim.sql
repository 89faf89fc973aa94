-- The columns of a claim that follow those of its move and its wait, in the order in which `leases` reads them.
params, params_object, timeout, inputs, tags, alone, alone_in_worker, priority
