"""`hangbisect nodes`: starts a probe or a job on sets of nodes, and says which node is bad."""
