"""A grammar of small stories: the text the built-in model learns from.

    python grammar.py [count] [seed]     # print some stories

A template is a string with `[this|that|]` for a choice and `{slot}` for a word of
the story at hand; choices nest. One story draws its people, its place and its plot once,
so that names, pronouns and the thing wished for stay the same to the end. `Teller` adds up
log2 of every choice it makes: the mean of that is the entropy of the grammar, which is also
the floor under the loss of any model of this text.
"""
import math
import random
import re
import sys
import zlib

GIRLS = "Mia Lily Nora Ella Ivy Rosa Tilly Hazel Wren Luna Daisy Poppy Suri Anna Zoe Maya".split()
BOYS = "Tom Ben Max Finn Leo Sam Otto Hugo Pip Bram Jack Oscar Milo Theo Ravi Noah".split()
ANIMALS = ("fox rabbit bear mouse duck owl hedgehog squirrel cat dog frog turtle sheep goat "
           "badger otter mole sparrow beaver deer").split()
TRAITS = ("kind brave curious shy clever cheerful quiet gentle lively patient careful proud "
          "polite honest playful thoughtful").split()
HOMES = ["in a quiet village", "deep in the forest", "by the wide river", "near the blue sea",
         "on a green hill", "on a small farm", "at the foot of a tall mountain", "in a warm valley",
         "at the edge of a big wood", "in a house with a red roof", "next to an old mill",
         "beside a little pond", "in a busy town", "under an old oak tree"]
COLOURS = "red blue green yellow golden silver white purple orange".split()
SIZES = "little big shiny old pretty round".split()
HOBBIES = ["sing", "climb trees", "look at the clouds", "pick flowers", "run in the grass",
           "tell stories", "count the stars", "draw pictures", "listen to the birds", "make cakes",
           "play by the water", "read old books", "jump over puddles", "build towers of stones"]

# A thing to wish for: what it is, what one does with it.
WISHES = {
    "kite": "fly it high in the [sky|wind]", "bell": "hear it ring [every morning|in the wind]",
    "drum": "play it for everyone", "lantern": "light the [path|room] at night",
    "boat": "sail it on the [pond|river]", "music box": "hear its [soft|sweet] song",
    "feather": "wear it in {his} hat", "shell": "hear the sea in it", "flower": "plant it [at home|by the door]",
    "apple": "make a [sweet |big |]pie", "scarf": "be warm in [the winter|the snow]",
    "book": "read it [before bed|every night]", "stone": "see it [shine|glow] in the dark",
    "flute": "play a [happy|new] song", "crown": "be {royal} for a day", "star": "keep it by the window",
}
# A thing to lose: where it may turn up.
TOYS = "ball hat button ring scarf key doll whistle coin ribbon basket bell mitten spoon".split()
SPOTS = ["under the bed", "under the table", "behind the door", "behind the barn", "in the tall grass", "near the well",
         "under a pile of leaves", "in the hay", "by the garden gate", "by the fence",
         "between two rocks", "next to the bridge", "next to the stream", "in the flower bed"]
SEEKS = ["the top of the highest hill", "the far side of the lake", "the old tower", "the market",
         "the end of the woods", "the house of the wise owl", "the gate of the palace", "the sandy beach",
         "the cave behind the waterfall"]
# An obstacle: how it looks, what the hero tries alone, what the friend does, how they get past.
BARS = {
    "river": ("there was a [wide|deep|fast] river in the way", "tried to jump over it, but it was too wide",
              "[found|saw] a long log and [made|built] a bridge", "they walked across [slowly|step by step|with great care]"),
    "wall": ("a [high|tall] stone wall stood in front of them", "jumped and jumped, but could not reach the top",
             "let {him} [climb|stand] on {Fhis} back", "they [helped|pulled] each other over the wall"),
    "fog": ("a thick [white|gray] fog came down", "could not see the path and [felt lost|went in a circle]",
            "[began to sing|rang a little bell] to show the way", "they held on to each other until the air was clear"),
    "cave": ("the path went [into|through] a dark cave", "took one step and [stopped|came back] at once",
             "lit a [small|bright] lamp", "they walked through the dark [hand in hand|side by side]"),
    "mud": ("the road was full of [deep|sticky] mud", "got stuck and could not move", "[threw|held out] a rope and pulled [hard|with all {Fhis} strength]",
            "they went around on the [dry|flat] stones"),
    "thorns": ("[sharp thorns|thorny bushes] grew across the path", "pushed at them and got a scratch",
               "[found|dug] a [small|low] tunnel under the thorns", "they crawled through [one after the other|on their knees]"),
    "wind": ("a [strong|cold] wind began to blow", "was [pushed|blown] back again and again", "found a [big|broad] rock to hide behind",
             "they waited until the wind [was gone|grew tired]"),
    "goose": ("an angry goose stood on the bridge", "shouted at the goose, but it only [hissed|grew more angry]",
              "[spoke softly|said please] and gave the goose some bread", "the goose [smiled and let them pass|stepped to one side]"),
    "gate": ("they came to a [big|heavy] iron gate", "pushed and pushed, but it was locked", "[looked|searched] around and found a key under a [stone|pot]",
             "the gate opened with a [long creak|loud click]"),
}
# A skill: what makes it hard, what the teacher says, what shows it was learned.
SKILLS = {
    "swim": ("swallowed a lot of water", "Move your arms slowly and breathe", "swam all the way across the pond"),
    "whistle": ("only air came out", "Make your lips small and round", "whistled a whole song"),
    "bake bread": ("the bread was [hard|black] as a stone", "Wait until the dough is big and soft", "made a warm loaf for [everyone|the whole family]"),
    "skate": ("fell down on the ice", "Bend your knees and look ahead", "skated around the lake without a fall"),
    "paint": ("all the colors ran together", "Let one color dry before the next", "painted a picture of the [sunset|hills]"),
    "dance": ("tripped over {his} own feet", "Listen to the music first", "danced [all evening|until the moon came up]"),
    "row a boat": ("the boat went round and round", "Pull with both arms at the same time", "rowed to the island and back"),
    "read": ("the letters looked like little bugs", "Take one letter at a time", "read a story to {his} [mother|father|grandmother]"),
    "ride a horse": ("slid off into the hay", "Sit up straight and be calm", "rode around the field [twice|three times]"),
    "tie a knot": ("the rope fell open", "Go over, under and then through", "tied a knot that no one could open"),
}
# A fear: how it shows, where the friend needs help, what the hero finds out.
FEARS = {
    "the dark": ("slept with a candle", "was lost in the woods at night", "the dark was only [quiet and soft|full of stars]"),
    "thunder": ("hid under the [bed|blanket]", "was alone in the storm", "thunder was only a [big noise|loud drum in the sky]"),
    "deep water": ("never went near the [lake|river]", "fell out of a boat", "the water could carry {him}"),
    "high places": ("never climbed [a tree|the hill]", "was stuck on top of a tall tree", "the world looked [small and lovely|beautiful] from up there"),
    "big dogs": ("ran away from every bark", "was [stuck|trapped] behind the fence of a big dog", "the dog only wanted to [play|be friends]"),
    "the old house": ("always walked the long way around it", "was locked in the old house", "the old house was just [dusty|empty and sad]"),
}
# A gift to make: of what, how it goes wrong, how it is mended.
GIFTS = {
    "cake": ("flour, eggs and honey", "it fell on the floor", "they made a smaller one with berries"),
    "card": ("paper and paint", "the rain made it wet", "they dried it by the fire and drew a sun on it"),
    "necklace": ("shells and string", "the string broke", "they picked up every shell and used a stronger string"),
    "chair": ("wood and nails", "one leg broke", "they made a new leg from a branch"),
    "blanket": ("soft wool", "a thread got caught and it came apart", "they sewed it together with a [red|blue] thread"),
    "kite": ("sticks and thin paper", "the wind tore it", "they put a [bright|colorful] patch on it"),
    "basket": ("long dry grass", "the handle came off", "they tied it on with a ribbon"),
}
FOODS = ["bread", "soup", "cheese", "honey", "rice", "porridge", "pie", "milk and bread"]
SEEDS = ["sunflower", "pumpkin", "apple tree", "rose bush", "pear tree", "bean plant"]
GAMES = ["hide and seek", "a game of cards", "a game of puppets", "pirates", "a guessing game", "a treasure hunt"]
RACES = ["the big race", "the singing contest", "the boat race", "the cooking contest", "the snow race", "the kite contest"]
SECRETS = ["hidden garden", "nest with three eggs", "tiny door in a tree", "cave full of crystals",
           "small waterfall", "meadow of fireflies", "room full of old toys"]
BREAKS = ["vase", "cup", "teapot", "lamp", "clock", "plate", "flower pot"]

FEEL_BAD = "[{H} felt [sad|very sad|upset].|{H} [sat down and cried|almost cried].|A tear ran down {his} [cheek|face].|{H} did not know what to do.|{His} heart was heavy.]"
FEEL_GOOD = "[{H} was [so |very |]happy.|{H} [laughed|smiled] [with joy|from ear to ear].|{H} jumped for joy.|{His} heart was [light|warm|full of joy].|{H} [felt|was] proud and happy.]"
THANKS = "\"Thank you[, {F}|, my friend| so much|]!\" [said {H}|{H} said|cried {H}]."
OFFER = "\"[Do not worry|Do not be sad|Do not give up], [{H}|my friend],\" said {F}. \"[I will help you|We can do it together|Let us try together|Two are better than one].\""
HELLO = ("[{His} best friend was a {Ftrait} {Fkind} named {F}.|{He} had a [good|dear] friend, a {Ftrait} {Fkind} named {F}.|"
         "{H} had a friend named {F}, a {Ftrait} {Fkind}.|Next door lived {F}, a {Ftrait} {Fkind}.]")
MEET = ("[On the way, {he} met|Soon {he} met|Then {he} saw|Just then, {he} met] a {Ftrait} {Fkind} named {F}. "
        "\"[Why are you so sad|What is wrong|Where are you going|What are you doing]?\" asked {F}. [{H} told {Fhim} everything.|So {H} told {Fhim} the whole story.]")
CLOSE = ("[From that day on, {H} and {F} [were the best of friends|did everything together|were never apart]."
         "|That [night|evening], {H} [went to bed|fell asleep] with a smile."
         "|They [walked|went] home together as the sun went down.|And they lived happily ever after.|And they were happy [ever after|for a long time].]")
END = "[| The end.]"
WHEN = "[One [sunny |cold |bright |warm |windy |]morning|One [fine |spring |summer |autumn |]day|One [quiet |]afternoon]"

# Each plot is a list of beats; `topic` is what the story is about, and the `slots` function fills it in.
PLOTS = {
    "quest": ["{He} [had one wish|dreamed of one thing]: a {thing}. {He} wanted to {use}.",
              "{H} had heard that [there was one|such a {topic} could be found] at {goal}. \"I will [go and find it|look for it]!\" {he} said.",
              MEET, "\"[I will come with you|Let me come with you|We can go together]!\" said {F}.",
              "[They walked for a long time.|They walked [all day|over hills and fields].|So the two friends set off.] {But} {bar}.",
              "{H} {bartry}. Then {F} {barhelp}, and {barpass}.",
              "[At last|In the end|Finally] they [came to|reached] {goal}. There, [in the sun|on a rock|in the grass], [lay|was] the {thing}!",
              FEEL_GOOD + " " + THANKS, "[Now {he} could {use}.|{He} took the {topic} home to {use}.|{H} and {F} took the {thing} home.]",
              "[{H} learned that|{He} knew now that] [a friend makes every road shorter|no road is too long with a friend|it is good to share a dream]."],
    "lost": ["[More than anything, {he} loved|What {he} loved most was|{He} was very proud of] {his} {thing}.",
             WHEN + ", the {topic} was gone. \"Oh no! Where is my {thing}?\" cried {H}.",
             FEEL_BAD, HELLO + " " + OFFER,
             "[They looked|First they looked|Together they looked] {spot1}, but [it was not there|there was nothing|they only found a [spider|worm|snail]]. They looked {spot2}, but [it was not there either|still they found nothing].",
             "[Then {F} [saw|noticed] something {colour} {spot3}.|Then {F} [stopped and pointed|gave a shout]. Something {colour} was {spot3}.] [It was the {thing}!|There was the {thing}!]",
             FEEL_GOOD + " " + THANKS,
             "[After that, {H} always [put|kept] the {topic} in a safe place.|{H} let {F} play with the {topic} all day.|{H} [hugged|held] the {topic} and then {he} hugged {F}.]"],
    "rain": ["[Today|That day|One day] {he} wanted to {hobby2} outside. But [when {he} woke up, it was raining|dark clouds came and it began to rain|the rain fell and fell].",
             "{H} [sat by|looked out of] the window. \"[The day is ruined|Now there is nothing to do|I do not like rain],\" {he} said.",
             "[Then|Just then] there was a knock at the door. It was {F}, {his} [friend, a {Ftrait} {Fkind}|{Ftrait} friend, the {Fkind}], [all wet|with wet feet|under a big leaf].",
             "\"[Let us|We can] play {topic}!\" said {F}. [{H} was not sure, but {he} said yes.|{H} liked the idea.|\"That sounds fun,\" said {H}.]",
             "They played {topic} [all morning|for hours|until lunch] and [laughed|giggled] [a lot|until their bellies hurt|so much]. [{F} won [once|first], and then {H} won.|They ate warm {food}, too.|Nobody thought about the rain.]",
             "[When they looked up|After a while|At last], the rain [had stopped|was over] and a [big |bright |]rainbow was in the sky.",
             "[\"[I almost wish|Maybe] it will rain again tomorrow,\" said {H}.|\"[What a good day|This was the best day],\" said {H}.|Then they went out to {hobby2} together.]",
             "[{H} learned that|Now {he} knew that] [a friend can make any day bright|fun can be found on a rainy day|a bad day can become a good one]."],
    "rivals": ["{He} wanted to win {topic}. But so did {F}, a {Ftrait} {Fkind}. [They never spoke to each other.|They did not like each other.|\"I am better than you,\" {F} always said.]",
               "[The day of {topic} came.|At last it was the day of {topic}.|Then came {topic}.] [Everyone came to watch.|The whole village was there.] [\"I will win!\" said {H}. \"No, I will!\" said {F}.|{H} and {F} did not say a word.]",
               "{H} was [in front|doing very well]. [Then {he} heard a cry.|Suddenly, there was a cry behind {him}.] {F} [had fallen|was hurt|had hurt {Fhis} foot] and could not [go on|get up].",
               "[{H} stopped. {He} thought about the prize, and then {he} turned around.|{H} could have gone on and won. But {he} went back.|\"I must help,\" {he} thought.]",
               "\"[Take my hand|Lean on me|Let me help you],\" said {H}. \"[Why do you help me?|Will you not lose?|Why did you stop?]\" asked {F}. \"[You are more important than a prize|It is no fun to win like that],\" said {H}.",
               "[They came in last|They finished together], [but everyone cheered|and everyone clapped for them|but nobody minded]. [{F} smiled at {H} for the first time.|\"I am sorry that I was mean,\" said {F}.]",
               "[{H} did not win {topic}, but {he} won a friend.|A friend is better than a prize.|The real prize was a new friend.]"],
    "skill": ["{He} wanted to learn to {topic}. [All the others could do it.|It looked so easy.|{He} thought about it day and night.]",
              "[{H} tried it|{He} tried] [alone|by {himself}], but {fail}. {He} tried again, but [it was no better|it went wrong again|nothing changed].",
              "[\"I will never learn to {topic}!\" {he} [said|cried].|\"It is too hard,\" {he} said.] " + FEEL_BAD,
              "[{F}, an old {Fkind}, [saw|heard] {him}.|An old {Fkind} named {F} came by.] \"{advice},\" said {F}. \"And do not [hurry|give up].\"",
              "[So {H} tried again|{H} did what {F} said], [every day|morning and evening|day after day]. [Little by little, it went better.|Each day it was a bit easier.|Some days were good and some were bad.]",
              "[At last|Then, one day|A week later], {H} {done}! " + FEEL_GOOD,
              "\"[Well done|I knew you could do it|Look at you]!\" said {F}. " + "[\"Thank you for your help,\" said {H}.|{H} gave {F} a big hug.|]",
              "[{H} learned that|Now {he} knew that] [it takes time to learn|you must try more than once|every step counts|nobody can do everything at once]."],
    "secret": [WHEN + ", {he} [went for a walk|followed a butterfly|walked farther than ever before] and found a {topic}. [It was the most beautiful thing {he} had ever seen.|{He} could not believe {his} eyes.]",
               "\"[This is my secret|I will tell no one]!\" [thought|whispered] {H}. [Every day {he} went back alone.|{He} went there the next day, and the next.]",
               HELLO + " \"Where do you go every day?\" asked {F}. \"Oh, nowhere,\" said {H}.",
               "[{F} looked sad and walked away.|{F} said nothing, but {Fhis} eyes were sad.] [{H} felt bad, too.|{H} did not feel good about it.]",
               "[Soon|After a few days] the {topic} was not so [nice|much fun] any more. [It was lonely there.|There was nobody to talk to.|Nobody was there to laugh with.]",
               "So {H} went to {F}. \"[I want to show you something|Close your eyes and come with me],\" {he} said. {He} took {Fhim} to the {topic}.",
               "\"[Oh, how beautiful|It is wonderful]!\" cried {F}. \"Thank you for [showing me|sharing your secret].\" " + FEEL_GOOD,
               "[A secret is nicer when it is shared.|Now it was their secret, and that was much better.|From then on, they went there together.]"],
    "stranger": ["{He} [had always wanted|wished for] a {thing}, to {use}. [But {he} had no money.|But there was none to be found.]",
                 WHEN + ", {H} met {F}, a {Ftrait} {Fkind} from far away. {F} [was cold and hungry|had lost {Fhis} way|was very tired|had hurt {Fhis} leg].",
                 "\"[Can you help me?|Please help me!]\" said {F}. [Others had walked by, but {H} stopped.|\"Of course,\" said {H}.]",
                 "{H} [gave {Fhim} warm {food} and a [soft|dry] bed|took {Fhim} home and gave {Fhim} {food}|made a fire and shared {his} {food}]. [They talked until late.|{F} told {him} stories of far lands.]",
                 "[The next morning|In the morning], {F} was [better|well again|ready to go]. \"[You were kind to me|You have a good heart], {H},\" said {F}. \"[Here is something for you|I have something for you].\"",
                 "[{F} opened {Fhis} bag and took out|From {Fhis} bag {F} took] a {thing}! [{H} could not believe it.|{H} opened {his} eyes wide.]",
                 THANKS + " [Now {he} could {use}.|{He} ran outside to {use}.]",
                 "[Kindness always comes back.|A kind act is never lost.|{H} learned that [those who give will also get|kindness comes back].]",
                 "[And every year, {F} came to visit {him}.|{H} never forgot {F}.|{H} kept the {topic} [all {his} life|for ever].]"],
    "share": ["[It was a hard winter|It was a long, cold winter|That year there was not much to eat], and {H} had only a little {food} left.",
              "[There was a knock at the door.|Someone knocked.] Outside stood {F}, a {Ftrait} {Fkind}. \"I [am so hungry|have nothing to eat],\" said {F}.",
              "{H} looked at {his} {food}. [There was so little of it!|It was hardly enough for one.] But {he} [thought of|saw] the [cold|snow] outside and opened the door.",
              "\"[Come in|Sit down], we will share,\" said {H}. They ate the {food} together [by the fire|at the small table], and [it tasted better than ever|it was enough for both].",
              "[Spring came.|Then the snow was gone.|Months went by.] " + WHEN + ", {H} [fell ill|could not find anything to eat|had a bad day] and had no {food}.",
              "Then {F} came [up the path|to the door] with a big basket. It was full of {food}! \"[You shared with me|You were good to me],\" said {F}, \"[and now I share with you|now it is my turn].\"",
              FEEL_GOOD + " " + THANKS, "[They learned that|Both knew that] [food is best when it is shared|a friend is better than a full belly|those who share are never poor]."],
    "fear": ["But {he} was afraid of {topic}. {He} {shows}. [Nobody knew about it.|The others laughed at {him}.|{He} did not like to talk about it.]",
             HELLO, WHEN + ", [{H} heard a cry for help|there was bad news]. {F} {needs}!",
             "{H} [began to shake|felt cold]. \"I am afraid of {topic},\" {he} thought. \"But {F} needs me.\"",
             "[{He} took a deep breath|{He} closed {his} eyes and counted to three], and {he} went. [Step by step|Slowly], {he} came closer. \"[I am here|I am coming], {F}!\" {he} called.",
             "[At last {he} found {F} and held {Fhis} hand.|{H} reached {F} and helped {Fhim}.] \"[You came|You are so brave]!\" said {F}. " + "[Together they went home.|They went home together.]",
             "And {H} [saw|found out] that {finds}. " + FEEL_GOOD,
             "[To be brave is to be afraid and still do it.|{H} was never so afraid of {topic} again.|{H} learned that [love is stronger than fear|a brave heart can be small].]"],
    "gift": [HELLO + " [Soon it was the birthday of {F}.|Tomorrow was the birthday of {F}.]",
             "\"I will make a {topic} for {F},\" [said|thought] {H}. {He} [took|found|got] {parts} and worked [all day|very hard|until late].",
             "[The {topic} was almost ready.|The {topic} looked lovely.] But then {wrong}! " + FEEL_BAD,
             "[{G}, {his} [neighbor|cousin], saw it.|{His} [neighbor|cousin] {G} came in.] \"[We can mend it|It is not so bad|Let me help you],\" said {G}. So {mend}.",
             "[It was not perfect, but it was made with love.|Now the {topic} was even better than before.|It looked a little funny, but nice.]",
             "{H} gave the {topic} to {F}. [{F} was quiet for a moment.|{F} looked at it for a long time.] \"[It is the best gift of all|I love it|You made this for me]!\" {Fhe} said and hugged {H}.",
             FEEL_GOOD + " \"{G} helped me,\" {he} said. [So they asked {G} to come to the party.|So all three had a party.]",
             "[A gift is not about being perfect.|The best gifts come from the heart.|What is broken can be mended.]"],
    "truth": [WHEN + ", {he} [was playing|played] in the house of {F}, {his} friend, a {Ftrait} {Fkind}. [{He} ran too fast|{He} was not careful], and the {colour} {topic} [fell and broke|broke into pieces].",
              "[Nobody had seen it.|{F} was outside and did not see it.] {H} [hid the pieces|hid the {topic}] {spot1}. {He} [went home quickly|said nothing].",
              "[That night {he} could not sleep.|But {he} could not eat or sleep.] [{He} thought of the {topic} again and again.|{His} belly hurt.|{He} felt very bad.]",
              "[The next day|In the morning], {F} asked, \"Have you seen my {colour} {topic}?\" [{H} looked at {his} feet.|{H} turned red.]",
              "\"[I broke it|It was me],\" {he} said [softly|at last]. \"I am [so |very |]sorry.\" [{F} was quiet.|{F} looked at {him} for a while.]",
              "\"[Thank you for telling me|It was brave to tell the truth],\" said {F}. \"[Come, we will mend it|Let us mend it together].\" They [got|took] the pieces from their place {spot1} and used [glue|a lot of glue].",
              "[Soon|In the evening] the {topic} was [whole again|almost like new]. " + FEEL_GOOD,
              "[It is always better to tell the truth.|{H} never hid the truth again.|{H} learned that the truth makes the heart light.]"],
    "garden": ["[An old {Fkind} named {F} gave {him} a small seed.|{F}, an old {Fkind}, gave {him} a seed.] \"[It will be|One day this will be] a {topic},\" said {F}. \"But you must wait.\"",
               "{H} planted the seed [in the garden|behind the house|in the soft earth]. {He} [gave it water|watered it] [every morning|every day].",
               "[The next day {he} ran out to look, but there was nothing.|{H} looked every hour, but nothing came up.] \"[Why does it not grow|When will it grow]?\" asked {H}. \"[Wait|Be patient],\" said {F}.",
               "[Days went by.|A week passed.|It rained, and then the sun came out.] {H} wanted to [dig it up|give up], but {he} [remembered the words of {F}|did not].",
               "[Then|At last], " + "one morning, there was a tiny green leaf! " + FEEL_GOOD,
               "[The leaf|The little plant] grew and grew. [By summer|After many weeks|In the end] it was a [big|tall|beautiful] {topic}. [Bees came to visit.|Birds sat down near it.|Everyone came to see it.]",
               "[{H} and {F} sat in its shade.|{H} gave the first [seeds|gift] of it to {F}.|{H} showed the {topic} to {F}.] \"[You waited well|Good things take time],\" said {F}.",
               "[{H} learned to be patient.|Good things come to those who wait.|Now {H} knew that small things can become great.]"],
}
TOPICS = {"quest": WISHES, "lost": TOYS, "rain": GAMES, "rivals": RACES, "skill": SKILLS, "secret": SECRETS,
          "stranger": WISHES, "share": FOODS, "fear": FEARS, "gift": GIFTS, "truth": BREAKS, "garden": SEEDS}

OPENINGS = ["Once upon a time, there was a {trait} {kind} named {H}. {He} lived {home}.",
            "Once upon a time, a {trait} {kind} named {H} lived {home}.",
            "Once upon a time, {home}, there lived a [little |small |young |]{kind} named {H}. {He} was {trait}[ and liked to {hobby}|].",
            "Once upon a time, there was a [little|small|young] {kind}. {His} name was {H}, and {he} lived {home}.",
            "Once there was a {trait} {kind} [named|called] {H} who lived {home}.",
            "Long ago, {home}, there lived a {trait} {kind} named {H}.",
            "Long ago, there was a {kind} named {H}. {H} was [very |]{trait} and lived {home}.",
            "{Home}, there lived a {trait} {kind} named {H}.", "{Home}, there was once a {trait} [little |young |]{kind} called {H}.",
            "{Home} lived {H}, a {trait} [little |]{kind}.",
            "One day, a {trait} {kind} named {H} woke up early. {He} lived {home}.",
            "There once was a {kind} named {H}. {He} lived {home} and was {trait}.",
            "{H} was a {trait} {kind} who lived {home}.", "{H} was a [little|young] {kind}. {He} lived {home}, and everyone said that {he} was {trait}."]
HABITS = ["", "{He} [loved|liked] to {hobby}.", "Every day, {he} [loved|liked] to {hobby}.", "In the morning, {H} [loved|liked] to {hobby}."]

HERO_WORDS = ("kind", "he", "him", "his", "He", "His", "himself", "royal")
# Slots that come from a table: by the topic, or (False) by the barrier drawn for the story.
DETAILS = [(True, ("use",), WISHES), (True, ("fail", "advice", "done"), SKILLS), (True, ("shows", "needs", "finds"), FEARS),
           (True, ("parts", "wrong", "mend"), GIFTS), (False, ("bar", "bartry", "barhelp", "barpass"), BARS)]

CHOICE = re.compile(r"\[([^\[\]]*)\]|\{(\w+)\}")


class Teller:
    """Tells stories from one seed, counting the bits of its choices."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.bits = 0.0

    def pick(self, options):
        options = list(options)
        choice = self.rng.choice(options)
        self.bits += math.log2(len(options) / options.count(choice))
        return choice

    def fill(self, text, slots):
        """Expands the first innermost choice or slot until none is left."""
        while found := CHOICE.search(text):
            new = slots[found[2]] if found[2] else self.pick(found[1].split("|"))
            text = text[:found.start()] + new + text[found.end():]
        return text

    def story(self):
        """One story, and the (name, place, topic) it is about."""
        slots = Slots(self)
        opening = self.pick(OPENINGS)
        habit = self.pick(HABITS) if "{hobby}" not in opening else ""
        text = " ".join(self.fill(beat, slots) for beat in (opening, habit, *PLOTS[slots["plot"]], CLOSE, END))
        text = re.sub(r"\b([Aa]) (?=[aeiou]|honest)", r"\1n ", text)
        return " ".join(text.split()), (slots["H"], slots["home"], slots["topic"])


class Slots(dict):
    """The words of one story, each drawn when a template first asks for it."""

    def __init__(self, teller):
        self.teller = teller
        self["plot"] = teller.pick(PLOTS)
        self["topic"] = teller.pick(TOPICS[self["plot"]])

    def __missing__(self, key):
        if key[0] in "FG" and key != "Ftrait":
            self.draw_person(key[0])
        elif key == "H" or key in HERO_WORDS:
            self.draw_person("H")
        else:
            self[key] = self.teller.fill(self.word(key), self)
        return self[key]

    def fresh(self, options, *others):
        """A pick that none of the other slots has already."""
        return self.teller.pick([o for o in options if o not in [self.get(k) for k in others]])

    def draw_person(self, who):
        """Draws a name, a kind and the pronouns; the hero's slots have no prefix."""
        girl = self.teller.pick((True, False))
        name = self.fresh(GIRLS if girl else BOYS, "H", "F", "G")
        elder = who == "F" and self["plot"] in ("skill", "garden")
        child = "girl" if girl else "boy"
        kind = self.teller.pick(("animal",) if elder else ("animal", "animal", child))
        if kind == "animal":
            kind = self.teller.pick(ANIMALS)
        he, him, his = ("she", "her", "her") if girl else ("he", "him", "his")
        if who == "H":
            words = dict(zip(HERO_WORDS, (kind, he, him, his, he.capitalize(), his.capitalize(), him + "self",
                                          "queen" if girl else "king")))
        else:
            words = {who + "he": he, who + "him": him, who + "his": his, who + "kind": kind}
        self.update(words, **{who: name})

    def word(self, key):
        """The template of any other slot."""
        topic, pick = self["topic"], self.teller.pick
        for family, keys, table in DETAILS:
            if key in keys:
                entry = table[topic] if family else table[self["barrier"]]
                return entry if isinstance(entry, str) else entry[keys.index(key)]
        match key:
            case "barrier": return pick(BARS)
            case "trait" | "Ftrait": return self.fresh(TRAITS, "trait", "Ftrait")
            case "home": return pick(HOMES)
            case "Home": return self["home"][0].upper() + self["home"][1:]
            case "hobby" | "hobby2": return self.fresh(HOBBIES, "hobby", "hobby2")
            case "colour": return pick(COLOURS)
            case "thing": return ("{colour} " if self["plot"] == "lost" else pick(COLOURS + SIZES) + " ") + topic
            case "goal": return pick(SEEKS)
            case "food": return topic if self["plot"] == "share" else pick(FOODS)
            case "spot1" | "spot2" | "spot3": return self.fresh(SPOTS, "spot1", "spot2", "spot3")
            case "But": return pick(("But then", "Then", "But soon", "After a while,"))
        raise KeyError(key)


def held_out(triple):
    """One (name, place, topic) triple in twelve is kept from training."""
    return zlib.crc32("/".join(triple).encode()) % 12 == 0


if __name__ == "__main__":
    count, seed = (int(a) for a in (sys.argv[1:] + ["5", "0"][len(sys.argv) - 1:]))
    teller = Teller(seed)
    for _ in range(count):
        print(teller.story()[0], end="\n\n")
    print(f"# {teller.bits / count:.1f} bits of choice per story", file=sys.stderr)
