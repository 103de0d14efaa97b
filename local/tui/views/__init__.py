"""Pages and panels to read: the whole conversation, the changes of files, rules, hosts, findings."""
