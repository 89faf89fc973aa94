INSERT INTO deliveries (subscription, at, delivered, first, last, events, attempt, status, took, detail)
VALUES (:subscription, :at, :delivered, :first, :last, :events, :attempt, :status, :took, :detail)
RETURNING seq
