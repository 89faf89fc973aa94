-- admission_pkey
SELECT ring, closed FROM penstock.admission WHERE id = 1
