"""Lets PyPI's CUDA build of torch import on a machine without the nvidia-* wheels.

For each shared library that torch names and that is missing, a stub is compiled beside torch's own libraries. Every
stubbed function returns 100 (cudaErrorNoDevice), so torch sees no GPU. Saves 3 GiB and four minutes of download.

usage: cuda_stubs.py SITE_PACKAGES      needs gcc, nm, readelf
"""

import collections
import glob
import os
import re
import subprocess
import sys
import tempfile

CUDA_NAME = re.compile(
    r"^(cuda|cu[A-Z]|cublas|cusparse|cusolver|cufft|curand|cudnn|cufile|cupti|nccl|nvrtc|nvshmem|nvtx|nvJitLink|_*cuda)"
)


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def read_libraries(paths):
    """What the libraries need, leave undefined and define, and which file each symbol version comes from."""
    needed, undefined, defined, file_of_version = set(), set(), set(), {}
    for path in paths:
        needed |= set(re.findall(r"NEEDED.*\[(.+?)\]", output_of("readelf", "-d", path)))
        file = None
        for line in output_of("readelf", "-V", "-W", path).splitlines():
            if match := re.search(r"File: (\S+)", line):
                file = match.group(1)
            elif (match := re.search(r"Name: (\S+)\s+Flags: \S+\s+Version: \d+", line)) and file:
                file_of_version.setdefault(match.group(1), file)
        for line in output_of("nm", "-D", "--with-symbol-versions", path).splitlines():
            fields = line.split()
            name, _, version = fields[-1].partition("@")
            if fields[-2] == "U":
                undefined.add((name, version.lstrip("@")))
            elif fields[-2] not in "wv":
                defined.add(name)
    return needed, undefined, defined, file_of_version


def compile_stub(folder, library, symbols_by_version):
    names = sorted({name for names in symbols_by_version.values() for name in names})
    with tempfile.TemporaryDirectory() as work:
        source, versions = os.path.join(work, "stub.c"), os.path.join(work, "stub.map")
        with open(source, "w") as file:
            file.writelines(f"int {name}(void){{return 100;}}\n" for name in names)
        with open(versions, "w") as file:
            for version, names in symbols_by_version.items():
                if version:
                    file.write(f"{version} {{ global: {'; '.join(sorted(names))}; }};\n")
        command = ["gcc", "-w", "-fno-builtin", "-nostdlib", "-shared", "-fPIC", "-O1", f"-Wl,-soname,{library}"]
        if os.path.getsize(versions):
            command.append(f"-Wl,--version-script={versions}")
        subprocess.run([*command, "-o", os.path.join(folder, library), source], check=True)


def main(site_packages):
    folder = os.path.join(site_packages, "torch", "lib")
    paths = [
        path
        for path in sorted(glob.glob(folder + "/*.so*"))
        if os.path.getsize(path) > 200_000 or "torch" in path or "c10" in path
    ]
    needed, undefined, defined, file_of_version = read_libraries(paths)
    present = {os.path.basename(path) for path in paths}
    missing = sorted(name for name in needed - present if re.match(r"lib(cu|nv|nccl)", name))
    symbols = collections.defaultdict(lambda: collections.defaultdict(set))
    for name, version in undefined:
        if name in defined:
            continue
        if version and file_of_version.get(version) in missing:
            symbols[file_of_version[version]][version].add(name)
        elif not version and CUDA_NAME.match(name):
            symbols["libcudart.so.13"][""].add(name)
    for library in missing:
        compile_stub(folder, library, symbols[library])
    print(len(missing), "stub libraries")


main(sys.argv[1])
