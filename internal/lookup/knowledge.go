package lookup

// Knowledge is what the system knows of a link address.
type Knowledge uint8

// The results of Neighbour.
const (
	Unknown    Knowledge = iota // it may be asking
	Known                       // packets can be sent
	Unanswered                  // it has asked, some time ago, and nobody has answered
)
