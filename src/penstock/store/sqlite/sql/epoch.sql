SELECT epoch FROM admission WHERE id = 1
