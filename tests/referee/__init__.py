"""A referee: what each way of retrying really does, told by the server."""
