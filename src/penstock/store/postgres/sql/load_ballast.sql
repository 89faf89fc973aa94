INSERT INTO penstock.ballast (bytes) VALUES (convert_to(repeat('x', %(bytes)s::integer), 'UTF8'))
