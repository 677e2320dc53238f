# One rank, in Perl: events on descriptor 3, answers to gates on descriptor 4.
use strict;
use warnings;
use IO::Handle;
use JSON::PP;

open(my $events, '>&=', $ENV{RANKPROOF_EVENTS}) or die "no channel for events: $!";
open(my $gates, '<&=', $ENV{RANKPROOF_GATES}) or die "no channel for gates: $!";
$events->autoflush(1);

sub emit {
    my ($name, %values) = @_;
    print $events JSON::PP->new->canonical->encode({event => $name, values => \%values}), "\n";
}

my $with = decode_json($ENV{RANKPROOF_WITH});

emit('ready');
<$gates>;    # comes when every rank is ready

my $rank = $ENV{RANKPROOF_RANK} + $with->{offset};
my $right = $rank == $ENV{RANKPROOF_RANK} ? JSON::PP::true : JSON::PP::false;
emit('answer', rank => $rank, size => $ENV{RANKPROOF_SIZE} + 0, right => $right);
