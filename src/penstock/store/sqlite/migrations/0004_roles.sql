-- Who alone may do what: autoscaling, for one. The fence grows whenever a role passes to another holder.
CREATE TABLE roles (
    role TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    fence INTEGER NOT NULL CHECK (fence >= 1),
    held_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
