INSERT INTO ballast (bytes) VALUES (zeroblob(:bytes))
