"""What a machine with a GPU has to show, with a built `lily` and nothing else:

    python3 tests/hardware/device.py --lily target/release/lily --device cuda [--sanitizer] [--bench]

Runs the doctor; compares the demo's greedy answers to 20 prompts with the CPU's; with --sanitizer
runs a prompt and a few decode steps under compute-sanitizer's memcheck, racecheck and initcheck;
with --bench measures the full 35B shape with random 4-bit weights. Ends non-zero if anything is wrong.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time

PROMPTS = [
    "What are you?",
    "What are you, and how do I load the real model?",
    "Hello!",
    "Good morning, how are you?",
    "Which formats can Lily read?",
    "How much memory does the real model need?",
    "What is 12 + 30?",
    "What is 7 times 8?",
    "Subtract 9 from 41.",
    "Who made you?",
    "How do I start the server?",
    "What does lily bench do?",
    "What is the capital of Australia?",
    "Can you write a poem about the sea?",
    "How do I choose the device?",
    "Does Lily run on a Mac?",
    "Thank you!",
    "What is MTP?",
    "Who won the football game yesterday?",
    "How do I see what is in a checkpoint?",
]


def run(command, timeout=600):
    start = time.time()
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout, done.stderr, time.time() - start


def doctor(lily, device):
    code, out, err, seconds = run([lily, "doctor", "--device", device])
    print(err, end="")
    print(out, end="")
    print(f"doctor: {'ok' if code == 0 else 'FAILED'} in {seconds:.0f} s", flush=True)
    return code == 0


def same_answers(lily, device):
    equal = 0
    for prompt in PROMPTS:
        answers = []
        for where in (["--device", "cpu", "--compute", "f32"], ["--device", device]):
            code, out, err, _ = run([lily, "chat", prompt, "--temp", "0", *where])
            if code != 0:
                print(f"chat {where} failed: {err.strip()}")
            answers.append(out)
        equal += answers[0] == answers[1]
        if answers[0] != answers[1]:
            print(f"DIFFERS: {prompt!r}\n  cpu  {answers[0]!r}\n  {device} {answers[1]!r}")
    print(f"greedy answers equal to the CPU's: {equal} of {len(PROMPTS)}", flush=True)
    return equal == len(PROMPTS)


def sanitizer(lily, device):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    ids = ",".join(str((i * 2654435761 % 2**32) % 4096) for i in range(75))
    good = True
    for check in ("memcheck", "racecheck", "initcheck"):
        with tempfile.TemporaryDirectory() as dir:
            # One chunk of 70 tokens, then 5 by themselves.
            command = [lily, "eval", "logits", "--device", device, "--compute", "bf16", "--ids", ids]
            command += ["--chunk", "70", "--out", f"{dir}/logits.safetensors"]
            code, out, err, seconds = run([tool, "--tool", check, "--error-exitcode", "9", *command])
        summary = [line for line in (out + err).splitlines() if "SUMMARY" in line]
        print(f"compute-sanitizer {check}: exit {code} in {seconds:.0f} s {summary}", flush=True)
        if code != 0:
            print("\n".join((out + err).splitlines()[:40]))
        good &= code == 0
    return good


def bench(lily, device):
    command = [lily, "bench", "--random", "--shape", "35b", "--experts", "256", "--device", device]
    command += ["--prompt", "512,2048,8192", "--ctx-depth", "256,2048,131072", "--gen", "64", "--reps", "3"]
    command += ["--chunk", "2048"]
    code, out, err, seconds = run(command)
    print(out if code == 0 else err)
    print(f"bench: exit {code} in {seconds:.0f} s", flush=True)
    return code == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lily", default="target/release/lily")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sanitizer", action="store_true")
    parser.add_argument("--bench", action="store_true")
    args = parser.parse_args()
    good = doctor(args.lily, args.device)
    if args.bench:
        good &= bench(args.lily, args.device)
    good &= same_answers(args.lily, args.device)
    if args.sanitizer:
        good &= sanitizer(args.lily, args.device)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
