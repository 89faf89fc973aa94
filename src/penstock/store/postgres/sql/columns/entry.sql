-- The columns of an entry of the journal, in the order in which every move writes them.
at, jobs, queue, type, move, before, after, ids, versions, attempts, reasons, spans
