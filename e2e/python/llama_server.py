"""A real llama.cpp HTTP server, from the wheel xllamacpp. Ends when its standard input does.

usage: llama_server.py FILE.gguf PORT MODEL_NAME
"""

import sys

import xllamacpp

gguf, port, name = sys.argv[1:4]
parameters = xllamacpp.CommonParams()
parameters.model.path = gguf
parameters.hostnames, parameters.port = ["127.0.0.1"], int(port)
parameters.n_parallel, parameters.n_ctx, parameters.model_alias = 4, 8192, {name}
# One thread is faster than two as soon as anything else runs on the machine.
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
parameters.endpoint_metrics = parameters.endpoint_slots = parameters.endpoint_props = True
parameters.ui = parameters.warmup = False
server = xllamacpp.Server(parameters)
print("listening on", server.listening_address, flush=True)
sys.stdin.read()
