"""Real vLLM servers on the CPU, forked from one warm interpreter: imports are paid once and pages are shared.

usage: vllm_servers.py LOG_FOLDER -- SERVE_ARGS... [-- SERVE_ARGS...]

Each group after "--" is [KEY=VALUE ...] and the arguments of one `vllm serve`. On standard input it takes `kill N`
(as the kernel would: the server and its engine, at once) and `start N`; when standard input ends, so does everything,
so that no server outlives the test that started it.
"""

import gc
import importlib
import multiprocessing
import os
import signal
import sys
import traceback

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # two processes a server, not three
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import vllm.utils.system_utils

# vLLM's CPU platform insists on "spawn", which imports everything again in every process.
vllm.utils.system_utils.get_mp_context = lambda: multiprocessing.get_context("fork")
vllm.utils.system_utils._maybe_force_spawn = lambda: None

import vllm.entrypoints.cli.main as command_line

WARM = (
    "vllm.entrypoints.cli.serve",
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.entrypoints.openai.api_server",
    "vllm.model_executor.model_loader",
    "vllm.model_executor.models.llama",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.engine.utils",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_model_runner",
    "vllm.v1.worker.cpu_worker",
    "transformers",
)


def groups(arguments):
    found = []
    for argument in arguments:
        if argument == "--":
            found.append([])
        else:
            found[-1].append(argument)
    return found


def serve(group, log):
    """In the forked child; does not return."""
    # A group of its own, so that the engine process dies with the server.
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    while group and "=" in group[0] and not group[0].startswith(("-", "/")):
        key, _, value = group.pop(0).partition("=")
        os.environ[key] = value
    sys.argv = ["vllm", "serve", *group]
    status = 1
    try:
        command_line.main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    os._exit(status)


def main(logs, arguments):
    os.makedirs(logs, exist_ok=True)
    for module in WARM:
        try:
            importlib.import_module(module)
        except ImportError as error:
            print("not there to warm up:", module, str(error)[:200])
    gc.freeze()
    servers = groups(arguments)
    running = {}

    def start(at):
        child = os.fork()
        if child == 0:
            serve(list(servers[at]), os.path.join(logs, f"vllm-{at}.log"))
        running[at] = child
        print("started", at, flush=True)

    def kill(at, number=signal.SIGKILL):
        child = running.pop(at, None)
        if child is None:
            return
        try:
            os.killpg(child, number)
        except ProcessLookupError:
            pass
        os.waitpid(child, 0)
        print("killed", at, flush=True)

    for at in range(len(servers)):
        start(at)
    for line in sys.stdin:
        order, _, at = line.strip().partition(" ")
        if order == "start":
            start(int(at))
        elif order == "kill":
            kill(int(at))
    for at in list(running):
        kill(at)


main(sys.argv[1], sys.argv[2:])
