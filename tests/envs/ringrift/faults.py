"""Faults to plant in the package's rules, each of which games beside the plain rules must find.

A fault takes a `plant(module, name, value)` and replaces a function where others call it: what a module has imported by
name is replaced in that module.
"""

import jax.numpy as jnp

from stoix_like.envs.ringrift import effects, endings, lines, mobility, rules, state, turn
from stoix_like.envs.ringrift.actions import PAIR, REGION, WHOLE
from stoix_like.envs.ringrift.sets import nothing


def caps_compare_the_other_way(plant):
    is_less = mobility._is_less
    plant(mobility, "_is_less", lambda left, right: is_less(right, left))


def no_marker_is_left_behind(plant):
    moved_markers = effects._moved_markers

    def faulty(state_, position, act, pair):
        markers, collapsed = moved_markers(state_, position, act, pair)
        return markers & ~act.first.where(pair.moves).at(None), collapsed

    plant(effects, "_moved_markers", faulty)


def foreign_markers_are_not_flipped(plant):
    moved_markers = effects._moved_markers

    def faulty(state_, position, act, pair):
        own = state.take(position.markers, state_.player)
        return moved_markers(state_, position, act._replace(between=act.between & own), pair)

    plant(effects, "_moved_markers", faulty)


def landing_on_a_marker_is_free(plant):
    rings = effects._rings
    plant(
        effects,
        "_rings",
        lambda state_, position, sets, act, pair: rings(
            state_, position, sets._replace(marked=nothing(sets.marked)), act, pair
        ),
    )


def the_captured_ring_goes_on_top(plant):
    plant(effects, "_with_bottom", effects._pushed)


def an_extraction_takes_the_top_ring(plant):
    plant(effects, "_extracted", lambda column, player: effects._popped(column, jnp.int32(1)))


def a_cap_is_one_ring(plant):
    plant(effects, "_cap", lambda column: jnp.minimum(column.height, 1))


def the_border_stays(plant):
    region_at = effects.region_at

    def faulty(*arguments):
        region, border = region_at(*arguments)
        return region, nothing(border)

    plant(effects, "region_at", faulty)


def lines_are_one_shorter(plant):
    line_length = state.line_length
    plant(state, "line_length", lambda num_players: line_length(num_players) - 1)


def a_line_costs_nothing(plant):
    after = rules._after
    plant(rules, "_after", lambda state_, act, done: jnp.where(act.kind == WHOLE, state.LINE, after(state_, act, done)))


def a_region_costs_nothing(plant):
    after = rules._after
    plant(
        rules,
        "_after",
        lambda state_, act, done: jnp.where(act.kind == REGION, state.TERRITORY, after(state_, act, done)),
    )


def regions_with_everybody_inside_are_claimable(plant):
    claimable = turn.claimable

    def faulty(rules_, position, sets, claimants):
        nobody_within = sets._replace(control=nothing(sets.control), buried=sets.owned)
        return claimable(rules_, position, nobody_within, claimants)

    plant(turn, "claimable", faulty)


def nothing_is_eliminated_by_force(plant):
    own_phase = turn._own_phase

    def faulty(*arguments):
        phase = own_phase(*arguments)
        return jnp.where(phase == state.FORCED_ELIMINATION, state.OVER, phase)

    plant(turn, "_own_phase", faulty)


def any_stack_moves_after_a_placement(plant):
    pairs = rules._pairs

    def faulty(rules_, state_, *rest):
        focus = jnp.where(state_.phase == state.MOVEMENT, jnp.uint32(0), state_.focus)
        return pairs(rules_, state_._replace(focus=focus), *rest)

    plant(rules, "_pairs", faulty)


def a_capture_after_a_move_is_forced(plant):
    can_skip = turn._can_skip
    plant(turn, "_can_skip", lambda phase, player, could: can_skip(phase, player, could) & (phase != state.CAPTURE))


def nobody_recovers(plant):
    for module in (turn, rules):
        plant(module, "recoveries", lambda *arguments: lines.Slides(*map(nothing, lines.recoveries(*arguments))))


def slides_look_for_no_lines(plant):
    completes = lines._completes
    plant(lines, "_completes", lambda *arguments: nothing(completes(*arguments)))


def a_slide_into_a_line_is_paid_before_the_line(plant):
    own_phase = turn._own_phase

    def faulty(rules_, state_, position, sets, could, claims, after):
        phase = own_phase(rules_, state_, position, sets, could, claims, after)
        is_slide = (after == state.LINE_PAYMENT) & (phase == state.LINE)
        return jnp.where(is_slide, state.LINE_PAYMENT, phase)

    plant(turn, "_own_phase", faulty)


def a_line_after_a_recovery_costs_nothing(plant):
    after = rules._after

    def faulty(state_, act, done):
        return jnp.where((act.kind == WHOLE) & state_.is_recovery, state.LINE, after(state_, act, done))

    plant(rules, "_after", faulty)


def a_line_after_a_recovery_is_paid_from_the_top(plant):
    payers, changed = rules._payers, effects._changed

    def as_usual(state_):
        return state_._replace(is_recovery=state_.is_recovery & (state_.phase != state.LINE_PAYMENT))

    plant(rules, "_payers", lambda state_, *rest: payers(as_usual(state_), *rest))
    plant(effects, "_changed", lambda state_, *rest: changed(as_usual(state_), *rest))


def a_chain_is_optional(plant):
    can_skip = turn._can_skip
    plant(turn, "_can_skip", lambda phase, player, could: can_skip(phase, player, could) | (phase == state.CHAIN))


def a_chain_goes_on_without_control(plant):
    after = rules._after

    def faulty(state_, act, done):
        return jnp.where((act.kind == PAIR) & done.is_capture, state.CAPTURE, after(state_, act, done))

    plant(rules, "_after", faulty)


def dead_placements_are_allowed(plant):
    find = turn.mobility

    def faulty(rules_, position, sets):
        found = find(rules_, position, sets)
        return found._replace(places=found.places | sets.empty.at(None, None))

    plant(turn, "mobility", faulty)


def seats_follow_backwards(plant):
    plant(
        turn,
        "_seats_after",
        lambda rules_, mover: (mover.astype(jnp.int32) - jnp.arange(rules_.num_players) - 1) % rules_.num_players,
    )


def the_last_player_wins_a_round_early(plant):
    plant(endings, "_ROUNDS_ALONE", 2)


def a_candidate_who_does_not_act_stays(plant):
    at_end_of_turn = endings.at_end_of_turn

    def faulty(rules_, state_, *rest):
        after = at_end_of_turn(rules_, state_, *rest)
        return after._replace(candidate=state_.candidate, rounds=state_.rounds)

    plant(endings, "at_end_of_turn", faulty)


def a_candidate_who_cannot_act_stays(plant):
    with_candidate = endings.with_candidate

    def faulty(state_, *rest):
        after = with_candidate(state_, *rest)
        stays = after.candidate < 0
        return after._replace(
            candidate=jnp.where(stays, state_.candidate, after.candidate),
            rounds=jnp.where(stays, state_.rounds, after.rounds),
        )

    plant(endings, "with_candidate", faulty)


def a_recovery_keeps_the_candidate(plant):
    at_end_of_turn = endings.at_end_of_turn

    def faulty(rules_, state_, *rest):
        after = at_end_of_turn(rules_, state_._replace(is_recovery=jnp.bool_(False)), *rest)
        return after._replace(is_recovery=state_.is_recovery)

    plant(endings, "at_end_of_turn", faulty)


def the_only_owner_does_not_win(plant):
    at_end_of_turn = endings.at_end_of_turn

    def faulty(*arguments):
        after = at_end_of_turn(*arguments)
        is_only = after.ending == state.ONLY_OWNER
        return after._replace(
            ending=jnp.where(is_only, jnp.int8(state.NOT_OVER), after.ending),
            winner=jnp.where(is_only, jnp.int8(-1), after.winner),
        )

    plant(endings, "at_end_of_turn", faulty)


def one_ring_more_is_needed_to_win(plant):
    ring_victory = state.ring_victory
    plant(state, "ring_victory", lambda num_players: ring_victory(num_players) + 1)


def one_cell_less_is_needed_to_win(plant):
    territory_victory = state.territory_victory
    plant(state, "territory_victory", lambda board, num_players: territory_victory(board, num_players) - 1)


def a_stalemate_forgets_rings_in_hand(plant):
    best = endings._best_of_stuck
    plant(
        endings,
        "_best_of_stuck",
        lambda state_, position: best(state_._replace(hand=jnp.zeros_like(state_.hand)), position),
    )


def the_first_is_the_last(plant):
    keys = endings._keys
    plant(endings, "_keys", lambda rules_, state_: -keys(rules_, state_))


def the_swap_exchanges_nothing(plant):
    next_decision = rules.next_decision

    def faulty(rules_, state_, *rest):
        return next_decision(rules_, state_._replace(is_swapped=jnp.bool_(False)), *rest)

    plant(rules, "next_decision", faulty)


def the_swap_is_offered_in_every_placement(plant):
    plant(rules, "can_swap", lambda state_: (state_.player == 1) & (state_.phase == state.PLACEMENT))
