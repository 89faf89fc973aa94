-- What a probe writes and undoes where it is in doubt whether the disk has room. Always empty; not compressed, so that it takes
-- its room.
CREATE TABLE penstock.ballast (
    bytes bytea STORAGE EXTERNAL NOT NULL
);
