"""What a plan's pins and pools ask for, summed against what the quota lets run at once."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.plan import CpuPlan

RESULT_THREADS = 1
POOL_THREADS = 1
"""The API server's result thread and one thread of any pool must be able to run beside the workers."""


@dataclass(frozen=True, slots=True)
class Budget:
    """CPUs that are there, and threads that want to run on them at once.

    Attributes:
        usable: CPUs that the quota lets run at once.
        pinned: CPUs that are pinned.
        preprocess: the API server's intra-op threads.
        encode: threads that encode outputs (encode workers x PNG threads).
        copy: threads that copy outputs (encode workers x copy workers); an output is copied, then encoded.
        needed: the fewest CPUs on which every worker, the result thread and one pool thread run at once.
        worker_count: workers of the deployment, pinned or not.
        mask_count: CPUs of the mask: more can never run at once, whatever the quota.
    """

    usable: int
    pinned: int
    preprocess: int
    encode: int
    copy: int
    needed: int
    worker_count: int
    mask_count: int

    @property
    def remains(self) -> int:
        """CPUs that stay idle when everything runs; below 0: threads that have to wait for another."""
        return self.usable - self.pinned - self.preprocess - max(self.encode, self.copy)

    @property
    def shortage(self) -> str | None:
        """The sentence that the quota is too small for the workers, said in advance; None where it is not."""
        if self.usable >= self.needed or not self.worker_count:
            return None
        remedy = "raise the CPU limit" if self.mask_count >= self.needed else "give the container more CPUs"
        others = ", or run fewer workers" if self.worker_count > 1 else ""
        return (
            f"{counted(self.usable, 'usable CPU')} cannot serve {counted(self.worker_count, 'worker')}: "
            f"{self.needed} are needed, for pins or a step thread each, a result thread and a pool thread; "
            f"{remedy}{others}"
        )


def budget_of(plan: CpuPlan, worker_count: int) -> Budget:
    """The budget of a deployment with `worker_count` workers (the plan names them only where they are pinned)."""
    pinned = len(plan.pinned & plan.mask)
    pools = plan.pools
    return Budget(
        usable=plan.usable,
        pinned=pinned,
        preprocess=pools.preprocess_threads,
        encode=pools.encode_workers * pools.png_threads,
        copy=pools.encode_workers * pools.copy_workers,
        needed=max(pinned, worker_count + RESULT_THREADS) + POOL_THREADS,
        worker_count=worker_count,
        mask_count=len(plan.mask),
    )


def counted(number: float, thing: str) -> str:
    """The number with its noun, which gets an s unless there is one of it."""
    text = f"{number:g}" if isinstance(number, float) else str(number)
    return f"{text} {thing}" if number == 1 else f"{text} {thing}s"
