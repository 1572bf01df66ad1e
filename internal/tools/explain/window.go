package explain

// A capture can be larger than memory, and a live one has no end. The ladder keeps the newest steps, which further
// packets can change, and passes older ones on.

const (
	// window is how many of the newest steps of a file can change. The packets of one message can be further apart
	// than that only if more than window messages begin between them: the rest of the message is a step of its own
	// then.
	window = 4096
	// mostFlows bounds the directions to QPs that are followed. Beyond it all are forgotten: of the next packet of each,
	// it is not known whether it is sent again.
	mostFlows = 1 << 16
)

// emit passes the steps that have not been passed, but not the newest keep ones, to out, in their order. Packets that
// continue one of them are a step of their own afterwards, except in a live ladder (keep 0 or 1), which counts them
// only.
func (l *ladder) emit(keep int, out func(*step)) {
	for ; l.emitted < len(l.steps)-keep; l.emitted++ {
		s := l.steps[l.emitted]
		s.final = keep > 1
		out(s)
	}
	if l.emitted < 2*window {
		return
	}
	n := l.emitted - window // the remarks of the other end's capture look back
	kept := copy(l.steps, l.steps[n:])
	clear(l.steps[kept:])
	l.steps, l.emitted = l.steps[:kept], l.emitted-n
}

// bound forgets all flows if there are too many.
func (l *ladder) bound() {
	if len(l.highest) > mostFlows {
		clear(l.highest)
	}
	if len(l.running) > mostFlows {
		clear(l.running)
	}
}
