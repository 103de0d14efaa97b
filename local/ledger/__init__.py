"""The ledger of this machine, a row for each model call of its auth proxies, and the budgets over all ccb."""
