-- tags_of
DELETE FROM job_tags WHERE seq IN carray(:seqs)
