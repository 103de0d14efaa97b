"""The ledger of this machine: one row for each model call that its auth proxies have passed on, and the budgets that
are kept with it. Several ccb at once share the file, so a budget holds over all of them."""
