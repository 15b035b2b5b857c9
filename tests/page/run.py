#!/usr/bin/env python3
"""Tests the chat page in Debian's Chromium, on `lily serve` and on a scripted server.

    tests/page/run.py [--binary target/release/lily] [--chromium /usr/bin/chromium] [-- arguments of pytest]

Playwright and pytest are installed once below target/page-venv. Pictures of the page land in
target/page-screenshots.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = ROOT / "target" / "page-venv"
PYTHON = VENV / "bin" / "python"
SUITE_LIMIT_S = 900

sys.path.insert(0, str(ROOT / "tests" / "clients"))
import serving  # noqa: E402


def fail(problem, remedy):
    sys.exit(f"page: {problem}\n  remedy: {remedy}")


def run(command, remedy):
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        fail(f"`{' '.join(map(str, command))}` failed: {error}", remedy)


def install():
    if not PYTHON.exists():
        run([sys.executable, "-m", "venv", VENV], "install Python's venv module (python3-venv on Debian)")
    have = subprocess.run([PYTHON, "-c", "import playwright, pytest"], capture_output=True, check=False)
    if have.returncode:
        pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "playwright", "pytest"], "check the network, then run this again")


def chromium(named):
    """The browser of the system: Playwright's own builds are not in any package registry."""
    candidates = [named] if named else ["chromium", "chromium-browser", "google-chrome"]
    for candidate in candidates:
        if path := shutil.which(candidate):
            return path
    fail(f"no browser: {', '.join(candidates)} is not there", "apt-get install -y chromium, or name one with --chromium")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target" / "release" / "lily")
    parser.add_argument("--chromium", help="path or name of the browser")
    parser.add_argument("arguments", nargs="*", help="further arguments of pytest")
    arguments = parser.parse_args()
    browser = chromium(arguments.chromium)
    if not arguments.binary.exists():
        fail(f"{arguments.binary} is not there", "cargo build --release, or name one with --binary")
    install()
    server, url = serving.start(arguments.binary.resolve(), [])
    pytest = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--lily-url={url}", f"--chromium={browser}"]
    try:
        passed = subprocess.run([*pytest, *arguments.arguments, HERE], timeout=SUITE_LIMIT_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"page: the tests took more than {SUITE_LIMIT_S} s")
        passed = False
    finally:
        clean = serving.stop(server)
    if passed and clean:
        print("page: all tests passed, clean exit")
    return 0 if passed and clean else 1


if __name__ == "__main__":
    sys.exit(main())
