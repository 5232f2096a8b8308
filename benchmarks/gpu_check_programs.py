"""The jobs that gpu_check_list.py starts, as text: each takes "cuda" or "cpu" as its first word.

A program makes the file `there-RANK` in its folder when it is about to stand where it is to stand.
"""

from __future__ import annotations

_BEGIN = """
import ctypes, json, os, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist

DEVICE = sys.argv[1]
RANK = int(os.environ.get("RANK", "0"))
FOR_EVER = 1 << 60  # cycles

def there():
    open(f"there-{RANK}", "w").close()

"""

# Eight ranks share the GPU, and meet by gloo; the kernel of one never ends.
SPIN = (
    _BEGIN
    + """
WHO = int(sys.argv[2])

def spin_for_ever():
    there()
    if DEVICE == "cpu":
        ctypes.CDLL(None).pause()
    torch.cuda._sleep(FOR_EVER)
    return torch.ones(1, device=DEVICE).sum().item()

def train():
    weight = torch.ones(1000, device=DEVICE)
    for number in range(6):
        if RANK == WHO and number == 3:
            spin_for_ever()
        if number == 3:
            there()
        dist.all_reduce(torch.ones(4))
        weight = weight * 1.01
        float(weight.sum())

dist.init_process_group("gloo")
train()
"""
)

# ncclCommInitRank with a second rank that never comes: it stands in its own code before.
NEVER_COMES = (
    _BEGIN
    + """
def read_shard():
    time.sleep(100000)

def train():
    values = torch.ones(1000, device=DEVICE)
    there()
    if RANK == 1:
        read_shard()
    dist.all_reduce(values)
    print(float(values.sum()), flush=True)

if DEVICE == "cuda":
    torch.cuda.set_device(0)
dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
train()
"""
)

# An all_reduce of NCCL behind a kernel that does not end, in a world of one.
BEHIND = (
    _BEGIN
    + """
device = torch.device("cuda", 0)
torch.cuda.set_device(device)
limit = timedelta(seconds=float(sys.argv[2]))
dist.init_process_group("nccl", timeout=limit, device_id=device)
values = torch.ones(1 << 20, device=device)
for number in range(5):
    dist.all_reduce(values)
torch.cuda.synchronize()
torch.cuda._sleep(FOR_EVER)
dist.all_reduce(values)
there()
torch.cuda.synchronize()
"""
)

# A GPU that is busy: with a kernel that only spins ("spin"), with sums ("sums"), or that is only
# in use ("idle").
LOAD = (
    _BEGIN
    + """
values = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
torch.cuda.synchronize()
there()
if sys.argv[2] == "spin":
    torch.cuda._sleep(FOR_EVER)
    torch.cuda.synchronize()
while sys.argv[2] == "sums":
    for _ in range(20):
        values @ values
    torch.cuda.synchronize()
time.sleep(100000)
"""
)

# A rank whose GPU has no memory left. On the CPU it raises what torch says then.
OUT_OF_MEMORY = (
    _BEGIN
    + """
SAID = (
    "CUDA out of memory. Tried to allocate 158.20 GiB. GPU 0 has a total capacity of 79.10 GiB of "
    "which 78.50 GiB is free. Including non-PyTorch memory, this process has 600.00 MiB memory in "
    "use. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by "
    "PyTorch but unallocated."
)

def load_batch():
    if DEVICE == "cpu":
        raise torch.OutOfMemoryError(SAID)
    share = float(sys.argv[2])
    free, total = torch.cuda.mem_get_info()
    bytes_ = int(total * share)
    return torch.empty(bytes_, dtype=torch.uint8, device=DEVICE)

def train():
    if RANK == 1:
        load_batch()
    dist.all_reduce(torch.ones(4))

dist.init_process_group("gloo")
train()
"""
)

# Somebody else, who has all of the GPU's memory but two GiB.
HOLDER = (
    _BEGIN
    + """
free, _ = torch.cuda.mem_get_info()
kept = torch.empty(free - (2 << 30), dtype=torch.uint8, device=DEVICE)
there()
time.sleep(100000)
"""
)

# Steps of a training, as long as the second word says in repetitions; prints their times.
STEPS = (
    _BEGIN
    + """
def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()

if DEVICE == "cpu":
    torch.set_num_threads(1)
size = 1024 if DEVICE == "cuda" else 128
model = torch.nn.Linear(size, size, device=DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
batch = torch.ones(size, size, device=DEVICE)

def run_step(parts):
    for _ in range(parts):
        model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    wait()

for _ in range(20):
    run_step(1)
parts = int(sys.argv[2])
if not parts:
    began = time.perf_counter()
    for _ in range(50):
        run_step(4)
    each = (time.perf_counter() - began) / 200
    print(json.dumps({"parts": max(1, round(0.005 / each))}))
    sys.exit()
times = []
for _ in range(int(sys.argv[3])):
    began = time.perf_counter()
    run_step(parts)
    times.append(time.perf_counter() - began)
times.sort()
print("TIMES", json.dumps({"median": times[len(times) // 2], "mean": sum(times) / len(times)}))
"""
)

# torch.compile of a real model, and three steps of its training.
COMPILE = (
    _BEGIN
    + """
from transformers import GPT2Config, GPT2LMHeadModel

large = DEVICE == "cuda"
about = GPT2Config() if large else GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=1000)
model = GPT2LMHeadModel(about).to(DEVICE)
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(0, about.vocab_size, (4, 128), device=DEVICE)
began = time.monotonic()
for number in range(3):
    loss = compiled(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {number}: {loss.item():.3f} after {time.monotonic() - began:.1f} s", flush=True)
"""
)

# A kernel of some seconds, timed by the GPU itself.
KERNEL = (
    _BEGIN
    + """
torch.cuda._sleep(1000)
torch.cuda.synchronize()
begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
there()
begun.record()
torch.cuda._sleep(8 * 10**9)
total = torch.ones(1000, device="cuda").sum()
ended.record()
torch.cuda.synchronize()
print("TIMES", json.dumps({"seconds": begun.elapsed_time(ended) / 1000, "sum": float(total)}))
"""
)
