UPDATE deliveries
SET at = max(at, :at), last = :last, events = events + :events, attempt = :attempt, status = :status, took = :took, detail = :detail
WHERE seq = :seq
