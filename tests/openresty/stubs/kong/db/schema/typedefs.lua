return { no_consumer = {}, protocols_http = {} }
