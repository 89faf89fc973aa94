SELECT ring, closed FROM admission WHERE id = 1
