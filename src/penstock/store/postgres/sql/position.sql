-- admission_pkey
SELECT penstock.flushed(), epoch FROM penstock.admission WHERE id = 1
