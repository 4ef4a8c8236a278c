//! Dashed lines of figures. Those of plotters ask for the `hypotf` of a C library that long-lived distributions do not have.

/// Place on a figure, in pixels.
type Pixel = (i32, i32);

/// Pieces of the line through `points` that are drawn, each `on` pixels long, with `off` pixels between them.
pub(super) fn dashes(
    points: impl IntoIterator<Item = Pixel>,
    on: u32,
    off: u32,
) -> Vec<Vec<Pixel>> {
    let lengths = [on, off].map(|length| f64::from(length.max(1)));
    let mut points = points.into_iter();
    let Some(first) = points.next() else {
        return Vec::new();
    };
    let (mut here, mut drawn, mut left) = (exact(first), true, lengths[0]);
    let mut pieces = vec![vec![first]];
    for next in points.map(exact) {
        loop {
            let way = (next.0 - here.0, next.1 - here.1);
            let length = (way.0 * way.0 + way.1 * way.1).sqrt();
            let share = if length > left { left / length } else { 1.0 };
            here = (here.0 + way.0 * share, here.1 + way.1 * share);
            if drawn && let Some(piece) = pieces.last_mut() {
                piece.push(rounded(here));
            }
            if length < left {
                left -= length;
                break;
            }
            drawn = !drawn;
            left = lengths[usize::from(!drawn)];
            if drawn {
                pieces.push(vec![rounded(here)]);
            }
        }
    }
    pieces.retain(|piece| piece.len() > 1);
    pieces
}

fn exact((x, y): Pixel) -> (f64, f64) {
    (x.into(), y.into())
}

fn rounded((x, y): (f64, f64)) -> Pixel {
    (x.round() as i32, y.round() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_and_gaps_take_turns_around_corners() {
        let line = [(0, 0), (10, 0), (10, 7)];
        let found = dashes(line, 4, 2);
        let wanted = [
            vec![(0, 0), (4, 0)],
            vec![(6, 0), (10, 0)],
            vec![(10, 2), (10, 6)],
        ];
        assert_eq!(found, wanted);
        let around = dashes([(0, 0), (3, 0), (3, 9)], 5, 1);
        assert_eq!(around[0], [(0, 0), (3, 0), (3, 2)]);
        assert_eq!(around[1], [(3, 3), (3, 8)]);
    }

    #[test]
    fn no_line_and_one_that_does_not_move_are_not_drawn_for_ever() {
        assert!(dashes([], 3, 3).is_empty());
        assert!(dashes([(1, 1)], 3, 3).is_empty());
        assert_eq!(
            dashes([(1, 1), (1, 1), (1, 1)], 0, 0),
            [[(1, 1), (1, 1), (1, 1)]]
        );
    }
}
