"""Bodies of requests and responses, as msgspec structs: decoding them is checking them."""
