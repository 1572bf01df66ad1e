package verbs

// The tables of QP.Modify (ibv_modify_qp: the tables of the verbs manual, which are those of the Linux kernel too). A
// row names the attributes that a transition requires and those that it admits. A pair of states without a row is not
// a transition. QPAttrState belongs to every change of state and may go with a row that keeps the state.

type move struct{ from, to QPState }

type rule struct{ required, optional QPAttrMask }

type transitions map[move]rule

// Short names keep the tables readable.
const (
	aState   = QPAttrState
	aCur     = QPAttrCurState
	aNotify  = QPAttrEnSQDAsyncNotify
	aAccess  = QPAttrAccessFlags
	aPKey    = QPAttrPKeyIndex
	aPort    = QPAttrPort
	aQKey    = QPAttrQKey
	aAV      = QPAttrAV
	aMTU     = QPAttrPathMTU
	aTimeout = QPAttrTimeout
	aRetry   = QPAttrRetryCnt
	aRNR     = QPAttrRNRRetry
	aRQPSN   = QPAttrRQPSN
	aRd      = QPAttrMaxQPRdAtomic
	aAlt     = QPAttrAltPath
	aMinRNR  = QPAttrMinRNRTimer
	aSQPSN   = QPAttrSQPSN
	aDestRd  = QPAttrMaxDestRdAtomic
	aMig     = QPAttrPathMigState
	aDestQPN = QPAttrDestQPN
	aRate    = QPAttrRateLimit
)

// withAny adds the transitions that every type has from every state: to RESET and to ERR.
func withAny(t transitions) transitions {
	for s := QPSReset; s <= QPSErr; s++ {
		t[move{s, QPSReset}] = rule{required: aState}
		t[move{s, QPSErr}] = rule{required: aState}
	}
	return t
}

// transitionsOf holds the table of each QP type.
var transitionsOf = map[QPType]transitions{
	QPTypeUD: withAny(transitions{
		{QPSReset, QPSInit}: {aState | aPKey | aPort | aQKey, 0},
		{QPSInit, QPSInit}:  {0, aState | aPKey | aPort | aQKey},
		{QPSInit, QPSRTR}:   {aState, aPKey | aQKey},
		{QPSRTR, QPSRTS}:    {aState | aSQPSN, aCur | aQKey},
		{QPSRTS, QPSRTS}:    {0, aState | aCur | aQKey},
		{QPSRTS, QPSSQD}:    {aState, aNotify},
		{QPSSQD, QPSRTS}:    {aState, aCur | aQKey},
		{QPSSQD, QPSSQD}:    {0, aState | aPKey | aQKey},
		{QPSSQE, QPSRTS}:    {aState, aCur | aQKey},
	}),
	QPTypeUC: withAny(transitions{
		{QPSReset, QPSInit}: {aState | aPKey | aPort | aAccess, 0},
		{QPSInit, QPSInit}:  {0, aState | aPKey | aPort | aAccess},
		{QPSInit, QPSRTR}:   {aState | aMTU | aAV | aDestQPN | aRQPSN, aPKey | aAlt | aAccess},
		{QPSRTR, QPSRTS}:    {aState | aSQPSN, aCur | aAccess | aAlt | aMig},
		{QPSRTS, QPSRTS}:    {0, aState | aCur | aAccess | aAlt | aMig},
		{QPSRTS, QPSSQD}:    {aState, aNotify},
		{QPSSQD, QPSRTS}:    {aState, aCur | aAccess | aAlt | aMig},
		{QPSSQD, QPSSQD}:    {0, aState | aPKey | aAccess | aAV | aAlt | aMig},
		{QPSSQE, QPSRTS}:    {aState, aCur | aAccess},
	}),
	QPTypeRC: withAny(transitions{
		{QPSReset, QPSInit}: {aState | aPKey | aPort | aAccess, 0},
		{QPSInit, QPSInit}:  {0, aState | aPKey | aPort | aAccess},
		{QPSInit, QPSRTR}:   {aState | aAV | aMTU | aDestQPN | aRQPSN | aDestRd | aMinRNR, aPKey | aAccess | aAlt},
		{QPSRTR, QPSRTS}:    {aState | aSQPSN | aTimeout | aRetry | aRNR | aRd, aCur | aAccess | aMinRNR | aAlt | aMig},
		{QPSRTS, QPSRTS}:    {0, aState | aCur | aAccess | aMinRNR | aAlt | aMig},
		{QPSRTS, QPSSQD}:    {aState, aNotify},
		{QPSSQD, QPSRTS}:    {aState, aCur | aAccess | aMinRNR | aAlt | aMig},
		{QPSSQD, QPSSQD}:    {0, aState | rcSQDAttrs},
	}),
	QPTypeXRCSend: withAny(transitions{
		{QPSReset, QPSInit}: {aState | aPKey | aPort | aAccess, 0},
		{QPSInit, QPSInit}:  {0, aState | aPKey | aPort | aAccess},
		{QPSInit, QPSRTR}:   {aState | aAV | aMTU | aDestQPN | aRQPSN, aPKey | aAccess | aAlt},
		{QPSRTR, QPSRTS}:    {aState | aSQPSN | aTimeout | aRetry | aRNR | aRd, aCur | aAccess | aMinRNR | aAlt | aMig},
		{QPSRTS, QPSRTS}:    {0, aState | aCur | aAccess | aMinRNR | aAlt | aMig},
		{QPSRTS, QPSSQD}:    {aState, aNotify},
		{QPSSQD, QPSRTS}:    {aState, aCur | aAccess | aMinRNR | aAlt | aMig},
		{QPSSQD, QPSSQD}:    {0, aState | rcSQDAttrs},
	}),
	QPTypeXRCRecv: withAny(transitions{
		{QPSReset, QPSInit}: {aState | aPKey | aPort | aAccess, 0},
		{QPSInit, QPSInit}:  {0, aState | aPKey | aPort | aAccess},
		{QPSInit, QPSRTR}:   {aState | aAV | aMTU | aDestQPN | aRQPSN | aDestRd | aMinRNR, aPKey | aAccess | aAlt},
		{QPSRTR, QPSRTS}:    {aState | aSQPSN | aTimeout, aCur | aAccess | aMinRNR | aAlt | aMig},
		{QPSRTS, QPSRTS}:    {0, aState | aCur | aAccess | aMinRNR | aAlt | aMig},
		{QPSRTS, QPSSQD}:    {aState, aNotify},
		{QPSSQD, QPSRTS}:    {aState, aCur | aAccess | aMinRNR | aAlt | aMig},
		{QPSSQD, QPSSQD}:    {0, aState | rcSQDAttrs},
	}),
	QPTypeRawPacket: withAny(transitions{
		{QPSReset, QPSInit}: {aState | aPort, 0},
		{QPSInit, QPSInit}:  {0, aState},
		{QPSInit, QPSRTR}:   {aState, 0},
		{QPSRTR, QPSRTS}:    {aState, aRate},
		{QPSRTS, QPSRTS}:    {0, aState | aRate},
		{QPSRTS, QPSSQD}:    {aState, 0},
		{QPSSQD, QPSRTS}:    {aState, 0},
		{QPSSQD, QPSSQD}:    {0, aState},
		{QPSSQE, QPSRTS}:    {aState, 0},
	}),
}

const rcSQDAttrs = aPKey | aPort | aAccess | aAV | aRd | aMinRNR | aAlt | aTimeout | aRetry | aRNR | aDestRd | aMig
