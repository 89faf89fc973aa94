DELETE FROM ballast
