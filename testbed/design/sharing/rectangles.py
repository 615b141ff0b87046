"""Jobs of a rail-only cluster as rectangles, domains by rails, that neither overlap nor share a link.

The position of a GPU is its high-bandwidth domain and its rail (its rank in the domain). A job on a rectangle keeps its
traffic there: tensor parallelism within a domain, data parallelism on the rails. Each GPU has its own links to its
domain and to its rail, which are both non-blocking, so jobs on different rectangles do not slow each other down. A
serving job is part of one domain.

A search with a proven result places a few jobs. More jobs are placed by a heuristic: the largest job first, into the
smallest free rectangle that holds it. A guillotine cut divides the remainder into two free rectangles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testbed.errors import WorkloadError

MAX_EXACT_JOBS = 8
"""Maximum number of jobs for the search."""
MAX_EXACT_GPUS = 2048
"""Maximum number of GPUs of a cluster for the search: each rectangle has a bit per GPU."""
MAX_STEPS = 2_000_000
"""Maximum number of rectangles that the search tries, in about a second. It then returns the best tiling, unproven."""

Shape = tuple[int, int]
"""Domains and rails of a rectangle."""


@dataclass(frozen=True, slots=True)
class RailCluster:
    """Cluster of `domains` domains with `rails` GPUs each."""

    domains: int
    rails: int

    def __post_init__(self) -> None:
        if self.domains < 1 or self.rails < 1:
            raise WorkloadError(
                f"a cluster of {self.domains} domains with {self.rails} rails: give 1 or more of each"
            )

    @property
    def gpu_count(self) -> int:
        """Number of GPUs."""
        return self.domains * self.rails


@dataclass(frozen=True, slots=True)
class RailJob:
    """A job of `gpu_count` GPUs, with tensor parallelism over `tensor_degree` GPUs of a domain.

    `shape` fixes the shape of its rectangle. If `is_serving`, all its GPUs must be in one domain. Raises
    `WorkloadError` for numbers below 1, and for a shape of another number of GPUs.
    """

    name: str
    gpu_count: int
    tensor_degree: int = 1
    shape: Shape | None = None
    is_serving: bool = False

    def __post_init__(self) -> None:
        if self.gpu_count < 1 or self.tensor_degree < 1:
            raise WorkloadError(
                f"job {self.name!r} has {self.gpu_count} GPUs and tensor width {self.tensor_degree}: give 1 or more"
                " of each"
            )
        if self.shape and (min(self.shape) < 1 or self.shape[0] * self.shape[1] != self.gpu_count):
            domains, rails = self.shape
            raise WorkloadError(
                f"job {self.name!r} has {self.gpu_count} GPUs, but its shape is {domains} domains by {rails} rails: "
                "correct one of them"
            )

    def list_shapes(self, cluster: RailCluster) -> tuple[Shape, ...]:
        """Return the shapes of rectangles that fit into the cluster and hold the job, in descending order of rails.

        >>> RailJob("train", 24, tensor_degree=2).list_shapes(RailCluster(16, 8))
        ((3, 8), (4, 6), (6, 4), (12, 2))
        >>> RailJob("serve", 4, is_serving=True).list_shapes(RailCluster(16, 8))
        ((1, 4),)
        """
        if self.shape:
            possible_shapes = [self.shape]
        else:
            rail_counts = range(cluster.rails, 0, -1)
            possible_shapes = [
                (self.gpu_count // rails, rails) for rails in rail_counts if self.gpu_count % rails == 0
            ]
        return tuple(
            (domains, rails)
            for domains, rails in possible_shapes
            if domains <= cluster.domains
            and rails <= cluster.rails
            and rails % self.tensor_degree == 0
            and (domains == 1 or not self.is_serving)
        )

    def explain_misfit(self, cluster: RailCluster) -> str:
        """Return why no rectangle in an empty cluster can hold the job, or "" if one can."""
        if self.list_shapes(cluster):
            return ""
        cluster_text = f"{cluster.domains} domains of {cluster.rails} GPUs"
        if self.gpu_count > cluster.gpu_count:
            return f"it needs {self.gpu_count} GPUs, but the cluster has {cluster.gpu_count}"
        if self.is_serving and self.gpu_count > cluster.rails:
            return f"it serves with {self.gpu_count} GPUs, but a domain has {cluster.rails}"
        if self.tensor_degree > cluster.rails:
            return f"its tensor width is {self.tensor_degree}, but a domain has {cluster.rails} GPUs"
        if self.shape:
            domains, rails = self.shape
            return (
                f"{domains} domains by {rails} rails with tensor width {self.tensor_degree} do not fit in"
                f" {cluster_text}"
            )
        return f"{self.gpu_count} GPUs with tensor width {self.tensor_degree} do not form a rectangle in {cluster_text}"


@dataclass(frozen=True, slots=True)
class Rectangle:
    """The place of a job: `domains` domains from `first_domain`, with `rails` GPUs in each from `first_rail`."""

    job: RailJob
    first_domain: int
    first_rail: int
    domains: int
    rails: int

    def find_gpus(self, cluster: RailCluster) -> tuple[int, ...]:
        """Return the numbers of the GPUs, counted domain by domain as in the fabric `rail-only`."""
        return tuple(
            domain * cluster.rails + rail
            for domain in range(self.first_domain, self.first_domain + self.domains)
            for rail in range(self.first_rail, self.first_rail + self.rails)
        )

    def list_tensor_groups(self, cluster: RailCluster) -> tuple[tuple[int, ...], ...]:
        """Return the groups of tensor parallelism: neighbours within a domain."""
        gpus, width = self.find_gpus(cluster), self.job.tensor_degree
        return tuple(gpus[start : start + width] for start in range(0, len(gpus), width))

    def list_data_groups(self, cluster: RailCluster) -> tuple[tuple[int, ...], ...]:
        """Return the groups that sum gradients: GPUs with the same part of the model. A serving job has none."""
        if self.job.is_serving:
            return ()
        gpus, width = self.find_gpus(cluster), self.job.tensor_degree
        return tuple(gpus[part::width] for part in range(width))


@dataclass(frozen=True, slots=True)
class Tiling:
    """Rectangles of a cluster's jobs. `reason_by_unplaced_job` holds the reason for each job without a rectangle.

    If `is_proven`, no other tiling uses more GPUs.
    """

    cluster: RailCluster
    rectangles: tuple[Rectangle, ...]
    reason_by_unplaced_job: Mapping[str, str] = field(default_factory=dict)
    is_proven: bool = False

    @property
    def used_gpu_count(self) -> int:
        """Number of GPUs in rectangles."""
        return sum(rectangle.domains * rectangle.rails for rectangle in self.rectangles)

    @property
    def utilisation(self) -> float:
        """Fraction of the GPUs in rectangles."""
        return self.used_gpu_count / self.cluster.gpu_count


def tile_jobs(
    cluster: RailCluster,
    jobs: Sequence[RailJob],
    *,
    max_exact_jobs: int = MAX_EXACT_JOBS,
    max_steps: int = MAX_STEPS,
) -> Tiling:
    """Return a tiling that uses as many GPUs as possible. It is proven if the search ends within `max_steps`.

    The search handles up to `max_exact_jobs` jobs and `MAX_EXACT_GPUS` GPUs. Raises `WorkloadError` for two jobs of the
    same name.

    >>> jobs = [
    ...     RailJob("train", 24, tensor_degree=4),
    ...     RailJob("fixed", 12, shape=(2, 6)),
    ...     RailJob("serve", 4, is_serving=True),
    ... ]
    >>> tiling = tile_jobs(RailCluster(domains=6, rails=8), jobs)
    >>> [
    ...     (one.job.name, one.first_domain, one.first_rail, one.domains, one.rails)
    ...     for one in tiling.rectangles
    ... ]
    [('train', 0, 0, 3, 8), ('fixed', 3, 0, 2, 6), ('serve', 5, 0, 1, 4)]
    >>> f"{tiling.utilisation:.0%}", tiling.is_proven
    ('83%', True)
    """
    names = [job.name for job in jobs]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise WorkloadError(f"two jobs are named {repeated!r}: rename one of them")
    rectangles, is_proven = cut_greedily(cluster, jobs), False
    used_gpus = sum(rectangle.domains * rectangle.rails for rectangle in rectangles)
    possible_jobs = [job for job in jobs if job.list_shapes(cluster)]
    if used_gpus == min(cluster.gpu_count, sum(job.gpu_count for job in possible_jobs)):
        is_proven = True
    elif len(possible_jobs) <= max_exact_jobs and cluster.gpu_count <= MAX_EXACT_GPUS:
        search = _TilingSearch(cluster, jobs, max_steps, rectangles)
        rectangles, is_proven = search.run(), search.step_count < max_steps
    return Tiling(cluster, rectangles, _explain_unplaced(cluster, jobs, rectangles), is_proven)


def cut_greedily(cluster: RailCluster, jobs: Sequence[RailJob]) -> tuple[Rectangle, ...]:
    """Place the largest job first, each in the smallest free rectangle that fits, and return the rectangles."""
    free_rectangles = [(0, 0, cluster.domains, cluster.rails)]
    rectangles = []
    for job in sorted(jobs, key=lambda job: -job.gpu_count):
        fitting_shapes = (
            (index, shape)
            for index, (_, _, domains, rails) in enumerate(free_rectangles)
            for shape in job.list_shapes(cluster)
            if shape[0] <= domains and shape[1] <= rails
        )
        fitting_shape = next(fitting_shapes, None)
        if fitting_shape is not None:
            index, (domains, rails) = fitting_shape
            first_domain, first_rail, free_domains, free_rails = free_rectangles.pop(index)
            rectangles.append(Rectangle(job, first_domain, first_rail, domains, rails))
            remaining_domains, remaining_rails = free_domains - domains, free_rails - rails
            # Of the two possible cuts, choose the one that leaves the largest single piece.
            if remaining_domains * free_rails >= free_domains * remaining_rails:
                remainders = [
                    (first_domain + domains, first_rail, remaining_domains, free_rails),
                    (first_domain, first_rail + rails, domains, remaining_rails),
                ]
            else:
                remainders = [
                    (first_domain, first_rail + rails, free_domains, remaining_rails),
                    (first_domain + domains, first_rail, remaining_domains, rails),
                ]
            free_rectangles += [remainder for remainder in remainders if remainder[2] and remainder[3]]
            free_rectangles.sort(key=lambda remainder: remainder[2] * remainder[3])
    return tuple(rectangles)


class _TilingSearch:
    """Branch and bound over the jobs, largest first. Each job gets a rectangle that is still free, or none.

    Rectangles can always be pushed towards domain 0 and rail 0. So it suffices to try first domains that are sums of
    domains of other jobs, and first rails that are sums of rails (Herz, 1972). A branch ends when neither all remaining
    jobs nor all free GPUs could make it better than the best tiling so far.
    """

    def __init__(
        self,
        cluster: RailCluster,
        jobs: Sequence[RailJob],
        max_steps: int,
        best_rectangles: tuple[Rectangle, ...],
    ) -> None:
        self._cluster, self._max_steps = cluster, max_steps
        self._jobs = sorted(
            (job for job in jobs if job.list_shapes(cluster)),
            key=lambda job: (-job.gpu_count, _make_job_key(job)),
        )
        self._remaining_gpu_counts = [
            sum(job.gpu_count for job in self._jobs[index:]) for index in range(len(self._jobs) + 1)
        ]
        self._spots = [self._find_spots(index) for index in range(len(self._jobs))]
        self._best_rectangles, self._best_gpu_count = (
            best_rectangles,
            sum(rectangle.domains * rectangle.rails for rectangle in best_rectangles),
        )
        self.step_count = 0

    def run(self) -> tuple[Rectangle, ...]:
        self._search_places(0, 0, 0, (), -1)
        return self._best_rectangles

    def _find_spots(self, job_index: int) -> list[tuple[Rectangle, int]]:
        """Return the possible rectangles of a job, each with a bit mask of its GPUs."""
        job, cluster = self._jobs[job_index], self._cluster
        other_shapes = [
            other_job.list_shapes(cluster)
            for other_index, other_job in enumerate(self._jobs)
            if other_index != job_index
        ]
        sums = (
            _list_sums([{shape[axis] for shape in shapes} for shapes in other_shapes], limit)
            for axis, limit in enumerate((cluster.domains, cluster.rails))
        )
        first_domains, first_rails = sums
        placements = []
        for domains, rails in job.list_shapes(cluster):
            row_bits = (1 << rails) - 1
            block_bits = sum(row_bits << (cluster.rails * domain) for domain in range(domains))
            placements += [
                (
                    Rectangle(job, first_domain, rail, domains, rails),
                    block_bits << (first_domain * cluster.rails + rail),
                )
                for first_domain in first_domains
                for rail in first_rails
                if first_domain + domains <= cluster.domains and rail + rails <= cluster.rails
            ]
        return placements

    def _search_places(
        self,
        job_index: int,
        occupied_bits: int,
        used_gpus: int,
        placed_rectangles: tuple[Rectangle, ...],
        previous_placement: int,
    ) -> None:
        """Try all rectangles of the jobs from `job_index` on. `previous_placement` is the previous job's, or -1."""
        if used_gpus > self._best_gpu_count:
            self._best_rectangles, self._best_gpu_count = placed_rectangles, used_gpus
        max_gpus = min(used_gpus + self._remaining_gpu_counts[job_index], self._cluster.gpu_count)
        if job_index == len(self._jobs) or max_gpus <= self._best_gpu_count:
            return
        job = self._jobs[job_index]
        # Equal jobs are interchangeable: each takes a later spot than the previous one, and none if that has none.
        is_repeated = job_index > 0 and _make_job_key(self._jobs[job_index - 1]) == _make_job_key(job)
        placements = self._spots[job_index]
        first_placement = (
            0 if not is_repeated else previous_placement + 1 if previous_placement >= 0 else len(placements)
        )
        for placement_index in range(first_placement, len(placements)):
            rectangle, bits = placements[placement_index]
            self.step_count += 1
            if self.step_count >= self._max_steps:
                return
            if occupied_bits & bits:
                continue
            self._search_places(
                job_index + 1,
                occupied_bits | bits,
                used_gpus + job.gpu_count,
                (*placed_rectangles, rectangle),
                placement_index,
            )
        self._search_places(job_index + 1, occupied_bits, used_gpus, placed_rectangles, -1)


def _make_job_key(job: RailJob) -> tuple[int, int, Shape, bool]:
    return job.gpu_count, job.tensor_degree, job.shape or (0, 0), job.is_serving


def _list_sums(value_sets: Sequence[set[int]], limit: int) -> list[int]:
    """Return the sums below `limit` of at most one value from each set, ascending.

    >>> _list_sums([{2, 3}, {4}], 7)
    [0, 2, 3, 4, 6]
    """
    sums = {0}
    for values in value_sets:
        sums |= {total + value for total in sums for value in values if total + value < limit}
    return sorted(sums)


def _explain_unplaced(
    cluster: RailCluster, jobs: Sequence[RailJob], rectangles: Sequence[Rectangle]
) -> dict[str, str]:
    placed_names = {rectangle.job.name for rectangle in rectangles}
    free_gpus = cluster.gpu_count - sum(rectangle.domains * rectangle.rails for rectangle in rectangles)
    return {
        job.name: _explain_unplaced_job(cluster, job, free_gpus)
        for job in jobs
        if job.name not in placed_names
    }


def _explain_unplaced_job(cluster: RailCluster, job: RailJob, free_gpus: int) -> str:
    misfit = job.explain_misfit(cluster)
    if misfit:
        return misfit
    if free_gpus < job.gpu_count:
        return f"it needs {job.gpu_count} GPUs, but other jobs leave {free_gpus}"
    shape_texts = " or ".join(f"{domains} by {rails}" for domains, rails in job.list_shapes(cluster))
    return f"{free_gpus} GPUs are free, but not in a rectangle of {shape_texts} (domains by rails)"
