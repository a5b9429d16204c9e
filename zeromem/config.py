"""Frozen configuration: ``Config()`` is tuned, ``Config.paper()`` is eq. 3-15 to the letter."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from zeromem.errors import InvalidInputError


def _check_types(owner: Any) -> None:
    """Hold every field to the type its annotation names; a float may be given as an int."""
    for f in fields(owner):
        value = getattr(owner, f.name)
        kinds = {"int": (int,), "float": (int, float), "bool": (bool,)}.get(str(f.type))
        wrong_bool = isinstance(value, bool) and str(f.type) != "bool"
        if wrong_bool or not isinstance(value, kinds or globals()[str(f.type)]):
            raise InvalidInputError(
                f"{type(owner).__name__}.{f.name} must be of type {f.type}, got {value!r}"
            )


def _check(owner: Any, **limits: tuple[float, float]) -> None:
    _check_types(owner)
    for name, (low, high) in limits.items():
        value: Any = getattr(owner, name)
        if not low <= value <= high:
            raise InvalidInputError(
                f"{type(owner).__name__}.{name} must be in [{low:g}, {high:g}], got {value!r}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestConfig:
    """How traces become turns.

    Attributes
    ----------
    max_turn_words : int
        A longer trace splits at sentence borders into turns of at most this many words (a CJK
        character counts as one).
    batch_traces : int
        Traces per transaction of a bulk add, and per encoding batch.
    """

    max_turn_words: int = 150
    batch_traces: int = 512

    def __post_init__(self) -> None:
        _check(self, max_turn_words=(8, 100_000), batch_traces=(1, 1_000_000))


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalWeights:
    """How much each signal of a (question, turn) pair counts in a view's score.

    Every signal lies in [0, 1]: scores are min-max normalised over the admissible turns of the
    question. Weights were set by hand in round steps, looking at the recall on the development
    parts of LoCoMo, HotpotQA and BEAM together; one set serves all three, and none was fitted.

    Attributes
    ----------
    turn_dense, window_dense, episode_dense : float
        Cosine between the question and the turn, the best window that holds it, its episode.
    turn_lexical, window_lexical, episode_lexical : float
        BM25 likewise.
    sentence_dense : float
        The turn's most similar sentence.
    episode_best : float
        The best turn-and-window score in the turn's episode: a region that answers one thing well
        is where its details are.
    subject : float
        The turn's speaker, or its title, is whom or what the question names.
    statement : float
        The turn does not end in a question (beyond what is usual for its speaker).
    informative : float
        The turn says much (beyond what is usual for its speaker).
    phrase : float
        A quoted or capitalised expression of the question stands in the turn, word for word.
    temporal : float
        The turn's time lies in the period that the question names.
    standing : float
        The user's standing instructions, and to a part what the user prefers, where the question
        asks the assistant for help and not about the past.
    """

    turn_dense: float = 0.0
    turn_lexical: float = 0.0
    window_dense: float = 0.0
    window_lexical: float = 0.0
    episode_dense: float = 0.0
    episode_lexical: float = 0.0
    sentence_dense: float = 0.0
    episode_best: float = 0.0
    subject: float = 0.0
    statement: float = 0.0
    informative: float = 0.0
    phrase: float = 0.0
    temporal: float = 0.0
    standing: float = 0.0

    def __post_init__(self) -> None:
        _check(self, **{f.name: (-100.0, 100.0) for f in fields(self)})


@dataclass(frozen=True, kw_only=True, slots=True)
class LexicalConfig:
    """BM25 (Lucene's): term saturation ``k1``, length normalisation ``b``."""

    k1: float = 1.5
    b: float = 0.75

    def __post_init__(self) -> None:
        _check(self, k1=(0, 100), b=(0, 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphConfig:
    """The entity-context graph (eq. 3-4) and its view (eq. 8-10).

    Attributes
    ----------
    damping : float
        gamma of eq. 10, the probability of following an edge.
    tol : float
        Error of the walk that is left, relative, in L1.
    adjacency_weight : float
        Of an edge between neighbouring turns of a session.
    title_links : bool
        A turn that names another context's title mentions that title's entity.
    title_weight, speaker_weight : float
        Of the edge from a turn to its own title, its own speaker; 0 leaves the edges out.
    speaker_mentions : bool
        Whether naming someone who also speaks here is a mention. Friends name each other all the
        time: such a node is a short cut from everywhere to everywhere, and who speaks is matched
        by the views themselves.
    idf_weighting : bool
        Weigh mentions by how rare the entity is.
    n_steps, threshold, top_sentences : int, float, int
        Propagation (eq. 9): steps, least activation that spreads on, and sentences per entity
        through which it spreads (0: all).
    min_alignment : float
        Least cosine at which a question's entity that is not in the graph aligns to one that is
        (eq. 8).
    entity_share : float
        The part of the reset vector that entity activations get; dense priors get the rest.
    prior_sharpness : float
        Context priors are softmax(sharpness x similarity); 0 makes them proportional to it.
    prior_top : int
        Contexts that get a prior (0: all).
    lexical_prior, window_prior, subject_prior : float
        Of BM25, of the window and of the subject match beside the dense similarity.
    dense_fallback : bool
        Where no entity of the question is in the graph, rank by dense similarity alone (the
        paper); otherwise the walk starts from the dense priors.
    log_span : float
        S_g is log(pi) over this many e-folds below the best, as a share; 0 keeps pi itself.
    hop_weight : float
        Of the second hop: a context whose title the best contexts name is lent their score, as
        far as the sentence that names it is similar to the question (eq. 9's sim(q, z)).
    hop_from : int
        Best contexts that the second hop starts from.
    refine : SignalWeights
        Lexical, phrase and other exact support that refines the ranking, added to S_g.
    """

    damping: float = 0.6
    tol: float = 1e-6
    adjacency_weight: float = 0.3
    title_links: bool = True
    title_weight: float = 1.0
    speaker_weight: float = 0.0
    speaker_mentions: bool = False
    idf_weighting: bool = False
    n_steps: int = 1
    threshold: float = 0.0
    top_sentences: int = 0
    min_alignment: float = 0.6
    entity_share: float = 0.2
    prior_sharpness: float = 15.0
    prior_top: int = 50
    lexical_prior: float = 1.0
    window_prior: float = 1.0
    subject_prior: float = 0.2
    dense_fallback: bool = False
    log_span: float = 6.0
    hop_weight: float = 0.4
    hop_from: int = 3
    refine: SignalWeights = SignalWeights(
        turn_dense=0.25, turn_lexical=0.25, subject=0.6, statement=0.25, standing=1.0
    )

    def __post_init__(self) -> None:
        _check_types(self)
        if not 0 <= self.damping < 1:
            raise InvalidInputError(
                f"GraphConfig.damping must be in [0, 1), got {self.damping!r}; 0.6 is the paper's"
            )
        _check(
            self,
            tol=(1e-12, 1.0),
            adjacency_weight=(0, 1e6),
            title_weight=(0, 1e6),
            speaker_weight=(0, 1e6),
            n_steps=(0, 100),
            threshold=(0, 1e6),
            top_sentences=(0, 2**31 - 1),
            min_alignment=(-1, 1),
            entity_share=(0, 1),
            prior_sharpness=(0, 1e4),
            prior_top=(0, 2**31 - 1),
            lexical_prior=(0, 1e4),
            window_prior=(0, 1e4),
            subject_prior=(0, 1e4),
            log_span=(0, 1e3),
            hop_weight=(0, 1e3),
            hop_from=(0, 10_000),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class HierarchyConfig:
    """How turns become windows and episodes (eq. 5), and how the view searches them (eq. 11).

    Attributes
    ----------
    window : int
        Turns per window; a window is centred on each turn and clipped at its session's ends.
    depth : float
        An episode ends where the dip in similarity between neighbouring windows exceeds the
        session's mean dip by this many standard deviations.
    min_turns, max_turns : int
        Bounds of an episode's length where the session is long enough.
    gap_hours : float
        A silence longer than this ends an episode whatever the similarity.
    local : int
        Turns on either side that a local span restores.
    half_informative : float
        Tokens at which a turn counts as half informative.
    episode_beam, window_beam : int
        Episodes, then windows in them, that stay in the search.
    contrast : float
        Power to which the view's normalised score is raised before fusion.
    score : SignalWeights
        A turn's score in this view.
    """

    window: int = 3
    depth: float = 2.0
    min_turns: int = 4
    max_turns: int = 48
    gap_hours: float = 6.0
    local: int = 2
    half_informative: float = 10.0
    episode_beam: int = 128
    window_beam: int = 1024
    contrast: float = 4.0
    score: SignalWeights = SignalWeights(
        turn_dense=0.75,
        turn_lexical=0.6,
        window_dense=1.25,
        window_lexical=0.75,
        episode_lexical=0.25,
        episode_best=1.0,
        sentence_dense=0.25,
        subject=1.5,
        statement=0.5,
        informative=0.25,
        temporal=0.5,
        standing=1.5,
    )

    def __post_init__(self) -> None:
        _check_types(self)
        if self.min_turns > self.max_turns:
            raise InvalidInputError(
                f"HierarchyConfig.min_turns must be at most max_turns, got {self.min_turns} and "
                f"{self.max_turns}"
            )
        if self.window % 2 == 0:
            raise InvalidInputError(
                f"HierarchyConfig.window must be odd to be centred, got {self.window!r}; 3 is usual"
            )
        _check(
            self,
            window=(1, 99),
            depth=(-10, 10),
            min_turns=(1, 10_000),
            max_turns=(1, 10_000),
            gap_hours=(0, float("inf")),
            local=(0, 99),
            half_informative=(1e-6, 1e6),
            contrast=(0.01, 100),
            episode_beam=(1, 2**31 - 1),
            window_beam=(1, 2**31 - 1),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class FusionConfig:
    """Eq. 12-13.

    Attributes
    ----------
    primary_weight : float
        rho, the weight of the view that the route puts first; the paper's is 0.6.
    candidates : int
        Turns that each view returns.
    part_weight : float
        Where a question names two ends or several things, each view adds to a turn's score the
        best that it gets as an answer to one of them, times this.
    """

    primary_weight: float = 0.7
    candidates: int = 200
    part_weight: float = 0.6

    def __post_init__(self) -> None:
        _check(self, primary_weight=(0, 1), candidates=(1, 512), part_weight=(0, 100))


@dataclass(frozen=True, kw_only=True, slots=True)
class ClosureConfig:
    """Bounded support of the main evidence (eq. 14).

    Attributes
    ----------
    bridges : int
        N_g: further graph-ranked contexts that share an entity with the main evidence.
    neighbors : int
        N_h: turns restored from the local spans of the main evidence.
    tokens : int
        Bound on the encoder tokens that closure adds.
    anchors : int
        Best main items whose local spans are restored and whose entities lead on.
    short : int
        Tokens up to which a neighbour gets the full support of the item beside it.
    """

    anchors: int = 5
    short: int = 48
    bridges: int = 5
    neighbors: int = 8
    tokens: int = 1200

    def __post_init__(self) -> None:
        _check(
            self,
            anchors=(0, 10_000),
            short=(0, 2**31 - 1),
            bridges=(0, 10_000),
            neighbors=(0, 10_000),
            tokens=(0, 2**31 - 1),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationConfig:
    """Rank of eq. 15: what is added to the fused score of an item of C(q).

    Attributes
    ----------
    support : float
        Part of the best main evidence beside it in its session.
    subject, temporal, answer_type : float
        Compatibility with the question: who speaks or what the title is; when it happened; whether
        the turn holds what the question asks for (a time, a number).
    superseded_similarity : float
        Least cosine between two turns of one speaker that state the same attribute, so that the
        older gives way when the present state is asked for.
    """

    support: float = 0.2
    subject: float = 0.05
    temporal: float = 0.1
    answer_type: float = 0.05
    superseded_similarity: float = 0.6

    def __post_init__(self) -> None:
        _check(
            self,
            support=(0, 1),
            subject=(0, 100),
            temporal=(0, 100),
            answer_type=(0, 100),
            superseded_similarity=(0, 1.01),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Everything that may be tuned. Immutable; use ``dataclasses.replace`` to vary it."""

    ingest: IngestConfig = field(default_factory=IngestConfig)
    lexical: LexicalConfig = field(default_factory=LexicalConfig)
    graph: GraphConfig = field(default_factory=GraphConfig)
    hierarchy: HierarchyConfig = field(default_factory=HierarchyConfig)
    fusion: FusionConfig = field(default_factory=FusionConfig)
    closure: ClosureConfig = field(default_factory=ClosureConfig)
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)

    def __post_init__(self) -> None:
        _check_types(self)

    @classmethod
    def paper(cls) -> Config:
        """Eq. 3-15 to the letter, with the paper's gamma = rho = 0.6 and nothing of ours added.

        Where the paper gives no number (how much lexical support refines a ranking), equal
        weights stand.
        """
        return cls(
            fusion=FusionConfig(primary_weight=0.6, part_weight=0.0),
            graph=GraphConfig(
                adjacency_weight=1.0,
                title_links=False,
                title_weight=0.0,
                speaker_weight=0.0,
                speaker_mentions=True,
                n_steps=1,
                threshold=0.0,
                top_sentences=0,
                min_alignment=-1.0,
                entity_share=0.5,
                prior_sharpness=0.0,
                prior_top=0,
                lexical_prior=0.0,
                window_prior=0.0,
                subject_prior=0.0,
                dense_fallback=True,
                log_span=0.0,
                hop_weight=0.0,
                refine=SignalWeights(turn_lexical=1.0, phrase=1.0),
            ),
            hierarchy=HierarchyConfig(
                contrast=1.0,
                score=SignalWeights(
                    turn_dense=1.0,
                    window_dense=1.0,
                    episode_dense=1.0,
                    turn_lexical=1.0,
                    phrase=1.0,
                    subject=1.0,
                    temporal=1.0,
                ),
            ),
        )
