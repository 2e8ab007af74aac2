"""Other people's classifiers, one small file each, imported when they are first used."""

from __future__ import annotations

from benchmarks.methods import KernelMethod, LinearMethod, Options
from benchmarks.peers import intelex, liblinear, libodm, libsvm, snapml


def linear(options: Options) -> list[LinearMethod]:
    """Peers that solve the L2-SVM."""
    return [*liblinear.METHODS, snapml.METHOD] if options.peers else []


def kernel(options: Options) -> list[KernelMethod]:
    """Peers that train RBF machines."""
    return [libsvm.METHOD, intelex.METHOD, libodm.method(options.libodm)] if options.peers else []
