-- What a probe writes and takes out again where it is in doubt whether the disk has room. Empty otherwise.
CREATE TABLE ballast (
    bytes BLOB NOT NULL
) STRICT;
