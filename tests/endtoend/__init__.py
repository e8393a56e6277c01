"""Ring 2: the installed product on a real cluster, as its users meet it."""
